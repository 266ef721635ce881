// Server-sent events from a response body: yields the data of each event. The browser's EventSource
// can only GET, and we POST.

const MAX_EVENT = 1 << 22; // characters; a server that never ends an event must not fill the memory

export async function* readEvents(body) {
    const decoder = new TextDecoder();
    const reader = body.getReader();
    let rest = '',
        data = [],
        size = 0;
    try {
        for (;;) {
            const { done, value } = await reader.read();
            rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
            // A carriage return at the very end may be half of a line end.
            const lines = rest.split(/\r\n|\n|\r(?!$)/);
            rest = lines.pop();
            if (rest.length + size > MAX_EVENT)
                throw new Error('the server sent an event without an end');
            for (const line of lines) {
                if (line === '') {
                    if (data.length) yield data.join('\n');
                    data = [];
                    size = 0;
                } else if (line.startsWith('data:')) {
                    data.push(line.slice(line[5] === ' ' ? 6 : 5));
                    size += line.length;
                }
            }
            if (done) break;
        }
        // An event that the connection's end cut off is dropped, as the standard says.
    } finally {
        await reader.cancel().catch(() => {});
    }
}
