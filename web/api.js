// The server's endpoints. Asks for the API key when the server wants one and keeps it for as long
// as the tab lives.
import { readEvents } from './sse.js';

const KEY = 'fletch-key';

export class ApiError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

let askForKey = async () => null;
let asking = null;

// ask(wasWrong) resolves to a key, or null when the user gave up.
export function onKeyNeeded(ask) {
    askForKey = ask;
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

// Requests that fail at the same time share one question.
async function newKey(used) {
    if (sessionStorage.getItem(KEY) !== used) return; // somebody asked meanwhile
    asking ??= askForKey(used !== null).finally(() => {
        asking = null;
    });
    const key = await asking;
    if (!key) throw new ApiError(401, 'This server needs an API key.');
    sessionStorage.setItem(KEY, key);
}

async function failure(response) {
    let message = `The server answered ${response.status} ${response.statusText}`.trim();
    try {
        const { error } = await response.json();
        message = error?.message ?? error ?? message;
    } catch {
        /* not JSON: the status has to do */
    }
    const wait = response.headers.get('retry-after');
    return new ApiError(
        response.status,
        String(message) + (wait ? ` (try again in ${wait} s)` : ''),
    );
}

async function call(path, body, signal) {
    for (;;) {
        const key = sessionStorage.getItem(KEY);
        const headers = {
            ...(body && { 'content-type': 'application/json' }),
            ...(key && { authorization: `Bearer ${key}` }),
        };
        let response;
        try {
            response = await fetch(path, {
                method: body ? 'POST' : 'GET',
                headers,
                body: body && JSON.stringify(body),
                signal,
            });
        } catch (error) {
            if (error.name === 'AbortError') throw error;
            throw new ApiError(0, 'The server can’t be reached. Is fletch serve still running?');
        }
        if (response.ok) return response;
        if (response.status !== 401) throw await failure(response);
        await newKey(key);
    }
}

const getJson = async (path, signal) => (await call(path, null, signal)).json();
const postJson = async (path, body, signal) => (await call(path, body, signal)).json();

export const models = () => getJson('/v1/models');
export const status = (signal) => getJson('/v1/status', signal);
export const applyTemplate = (body, signal) => postJson('/apply-template', body, signal);

// Yields the chunks of a streamed answer. An error in the middle of the stream is thrown like any.
export async function* chat(body, signal) {
    const response = await call('/v1/chat/completions', body, signal);
    let ended = false;
    for await (const data of readEvents(response.body)) {
        ended = data === '[DONE]';
        if (ended) break;
        const chunk = JSON.parse(data);
        if (chunk.error)
            throw new ApiError(
                chunk.error.code ?? 500,
                chunk.error.message ?? 'The answer failed.',
            );
        yield chunk;
    }
    if (!ended) throw new ApiError(0, 'The connection broke before the answer was complete.');
}
