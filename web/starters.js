// What a new chat suggests: things that the model at hand can do. No DOM here.

const BUILT_IN = [
    'Tell me a story.',
    'How do I make a model smaller?',
    'What is a GGUF file?',
    '27+48=',
];
const CHAT = [
    'Explain how a hash table works.',
    'Write a polite reply that declines a meeting.',
    'What should I see in Lisbon in two days?',
    'Write a Python function that finds duplicate files.',
];
const PLAIN = ['Once upon a time', 'The three most important inventions are', 'def fibonacci(n):'];

// model: of the server's status
export function startersFor(model) {
    if (model?.builtin) return BUILT_IN;
    return model?.has_template === false ? PLAIN : CHAT;
}
