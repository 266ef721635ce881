// The server's endpoints. Asks for the API key when the server wants one and keeps it for as long
// as the tab lives.
import { session } from './local.js';
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

export const hasKey = () => session.get(KEY) !== null;

// Requests that fail at the same time share one question.
async function newKey(used) {
    if (session.get(KEY) !== used) return; // another request has asked meanwhile
    asking ??= askForKey(used !== null).finally(() => {
        asking = null;
    });
    const key = await asking;
    if (!key) throw new ApiError(401, 'This server needs an API key.');
    session.set(KEY, key);
}

async function failure(response) {
    let message = `The server returned ${response.status} ${response.statusText}`.trim();
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
        const key = session.get(KEY);
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
            throw new ApiError(0, 'The server can’t be reached. Is “fletch serve” still running?');
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

// Why a stream ended before its answer did.
async function brokenStream() {
    const lives = await fetch('/livez', { signal: AbortSignal.timeout(2000) }).catch(() => null);
    return new ApiError(
        0,
        lives?.ok
            ? 'The connection was lost before the answer was complete.'
            : 'The server stopped in the middle of the answer. Is “fletch serve” still running?',
    );
}

// The events of a stream; what the browser says of a broken one is no sentence for people.
async function* eventsOf(response, signal) {
    try {
        yield* readEvents(response.body);
    } catch (error) {
        throw error instanceof TypeError && !signal.aborted ? await brokenStream() : error;
    }
}

// Yields the chunks of a streamed answer. An error in the middle of the stream is thrown like any.
export async function* chat(body, signal) {
    const response = await call('/v1/chat/completions', body, signal);
    for await (const data of eventsOf(response, signal)) {
        if (data === '[DONE]') return;
        const chunk = JSON.parse(data);
        if (chunk.error)
            throw new ApiError(
                chunk.error.code ?? 500,
                chunk.error.message ?? 'The answer failed.',
            );
        yield chunk;
    }
    throw await brokenStream();
}
