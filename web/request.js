// Turns settings and messages into the body of a request, and a request into a curl command.

import { SAMPLING } from './sampling.js';

// Every setting: how it is shown, and under which name it is sent. Empty: the server's own value.
export const SETTINGS = [
    ...SAMPLING,
    {
        key: 'max_tokens',
        label: 'Maximum answer length',
        min: 1,
        max: 1_000_000,
        step: 1,
        help: 'In tokens.',
    },
    {
        key: 'seed',
        label: 'Seed',
        min: 0,
        max: 4_294_967_295,
        step: 1,
        help: 'The same seed gives the same answer; leave empty for a new seed each time.',
    },
];

export const DEFAULTS = {
    system: '',
    thinking: '',
    stop: '',
    tools: '',
    format: '', // of the answer: json, schema, or as it comes
    schema: '',
    probabilities: true,
};

// A fence that is longer than any in the text.
function fenced({ name, text }) {
    const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
}

// Text files go before the words that are about them.
export const withFiles = ({ content, files = [] }) =>
    [...files.map(fenced), content].filter((part) => part !== '').join('\n\n');

// What the API calls a message.
export function toApi(node) {
    const message = { role: node.role, content: withFiles(node) };
    if (node.role === 'tool') message.tool_call_id = node.toolCallId;
    if (node.reasoning) message.reasoning_content = node.reasoning;
    if (node.toolCalls?.length) {
        message.tool_calls = node.toolCalls.map(({ id, name, arguments: args }) => ({
            id,
            type: 'function',
            function: { name, arguments: args },
        }));
    }
    return message;
}

function parsed(json, what) {
    try {
        return JSON.parse(json);
    } catch (error) {
        throw new Error(`The ${what} in the settings is not JSON: ${error.message}`);
    }
}

// What decides the prompt: also the body of /apply-template. Throws when the tools are no JSON.
export function promptBody(settings, path) {
    const messages = path.map(toApi);
    if (settings.system.trim()) messages.unshift({ role: 'system', content: settings.system });
    const body = { messages };
    if (settings.tools.trim()) body.tools = parsed(settings.tools, 'list of tools');
    if (settings.thinking)
        body.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
    return body;
}

function responseFormat({ format, schema }) {
    if (format === 'json') return { type: 'json_object' };
    const json_schema = { name: 'answer', schema: parsed(schema, 'JSON schema') };
    return { type: 'json_schema', json_schema };
}

export function requestBody(settings, path, { model, continueLast, seed }) {
    const body = {
        model,
        ...promptBody(settings, path),
        stream: true,
        stream_options: { include_usage: true, include_progress: true },
    };
    for (const { key } of SETTINGS) if (settings[key] != null) body[key] = settings[key];
    body.seed ??= seed;
    const stops = settings.stop.split('\n').filter((line) => line !== '');
    if (stops.length) body.stop = stops;
    if (settings.format) body.response_format = responseFormat(settings);
    if (settings.probabilities) Object.assign(body, { logprobs: true, top_logprobs: 5 });
    if (continueLast) body.continue_final_message = true;
    return body;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// For a POSIX shell. The key stays out of it: it belongs in no clipboard.
export function asCurl(origin, body, withKey) {
    const lines = [
        `curl -N ${quoted(`${origin}/v1/chat/completions`)}`,
        "-H 'Content-Type: application/json'",
    ];
    if (withKey) lines.push('-H "Authorization: Bearer $FLETCH_API_KEY"');
    lines.push(`-d ${quoted(JSON.stringify(body, null, 2))}`);
    return lines.join(' \\\n    ');
}
