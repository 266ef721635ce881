// Text files that go along with a message: read from files, and made of long pastes.

const MAX_BYTES = 512 * 1024; // of one file; the server takes larger bodies, few contexts do
const LONG_PASTE = { characters: 4000, lines: 40 };

export const countLines = (text) => text.replace(/\n$/, '').split('\n').length;

// Whether a pasted text is better kept as a file than typed into the box.
export const isLongPaste = (text) =>
    text.length > LONG_PASTE.characters || countLines(text) > LONG_PASTE.lines;

export const pastedFile = (text) => ({ name: 'Pasted text', text });

// Resolves to {name, text}; fails with a sentence where the file is no text or too large.
export async function readTextFile(file) {
    if (file.size > MAX_BYTES)
        throw new Error(`${file.name} is larger than ${MAX_BYTES / 1024} KiB.`);
    const bytes = await file.arrayBuffer();
    try {
        const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
        if (!text.includes('\0')) return { name: file.name, text };
    } catch {
        /* not UTF-8 */
    }
    throw new Error(`${file.name} is not a text file, and only text can be attached.`);
}
