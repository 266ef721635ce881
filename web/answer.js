// Folds the chunks of a streamed answer into a message, and what the server says about its progress
// into figures. No DOM here.

export function newAnswer(content = '', tokens = []) {
    return {
        role: 'assistant',
        content,
        reasoning: '',
        toolCalls: [],
        tokens,
        finish: null,
        stats: {},
        error: null,
    };
}

// Live figures of one request; not kept.
export function newProgress(now) {
    return {
        began: now,
        queue: null,
        done: 0,
        total: 0,
        cached: 0,
        prefillSince: null,
        firstAt: null,
        n: 0,
    };
}

const oneToken = ({ token, bytes, logprob }) => ({
    text: token,
    bytes: bytes ?? undefined,
    logprob,
});

function addToolCalls(calls, deltas) {
    for (const delta of deltas) {
        const call = (calls[delta.index ?? calls.length] ??= { id: '', name: '', arguments: '' });
        call.id ||= delta.id ?? '';
        call.name += delta.function?.name ?? '';
        call.arguments += delta.function?.arguments ?? '';
    }
}

function addChoice(message, progress, { delta = {}, logprobs, finish_reason: finish }, now) {
    const entries = logprobs?.content ?? [];
    const says = delta.content || delta.reasoning_content || delta.tool_calls;
    if (says || entries.length) {
        progress.firstAt ??= now;
        progress.n += entries.length || 1;
    }
    message.content += delta.content ?? '';
    message.reasoning += delta.reasoning_content ?? '';
    if (delta.tool_calls) addToolCalls(message.toolCalls, delta.tool_calls);
    const part = delta.reasoning_content ? 'reasoning' : delta.tool_calls ? 'tool' : 'content';
    for (const entry of entries) {
        message.tokens.push({
            ...oneToken(entry),
            part,
            top: (entry.top_logprobs ?? []).map(oneToken),
        });
    }
    message.finish = finish ?? message.finish;
}

function addFigures(message, progress, figures, now) {
    progress.queue = figures.queue_position || null; // 0: it runs
    if (figures.prompt_done != null && !progress.queue) {
        progress.prefillSince ??= { at: now, done: figures.prompt_done };
        progress.done = figures.prompt_done;
        progress.total = figures.prompt_total;
    }
    progress.cached = figures.cached ?? progress.cached;
    if (figures.cached != null) message.stats.cached = figures.cached;
    if (figures.reuse_end && !progress.queue) message.stats.reuseEnd = figures.reuse_end;
    // Why it ended, where that is more than OpenAI's reasons can say.
    if (['context', 'timeout'].includes(figures.ended)) message.finish = figures.ended;
    for (const name of ['queue_ms', 'prefill_ms', 'decode_ms', 'tokens_per_s']) {
        if (figures[name] != null) message.stats[name] = figures[name];
    }
}

export function addChunk(message, progress, chunk, now) {
    if (chunk.model) message.stats.model = chunk.model;
    if (chunk.fletch) addFigures(message, progress, chunk.fletch, now);
    for (const choice of chunk.choices ?? []) addChoice(message, progress, choice, now);
    if (chunk.usage) {
        message.stats.prompt = chunk.usage.prompt_tokens;
        message.stats.answer = chunk.usage.completion_tokens;
        message.stats.cached =
            chunk.usage.prompt_tokens_details?.cached_tokens ?? message.stats.cached;
    }
}

// Milliseconds until the prompt is processed, or null while that can't be known.
export function prefillEta(progress, now) {
    const { prefillSince: since, done, total } = progress;
    if (!since || done <= since.done || now <= since.at) return null;
    return ((total - done) * (now - since.at)) / (done - since.done);
}

// Tokens per second of the answer so far, or null.
export function answerSpeed(progress, now) {
    if (progress.firstAt === null || progress.n < 2 || now <= progress.firstAt) return null;
    return ((progress.n - 1) * 1000) / (now - progress.firstAt);
}

// The text of some tokens; a character may be spread over several. null: it ends within one.
export function tokensText(tokens) {
    const bytes = tokens.flatMap((t) => t.bytes ?? [...new TextEncoder().encode(t.text)]);
    try {
        return new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes));
    } catch {
        return null;
    }
}

// What to continue from when token `index` is replaced by one of its alternatives: the text and the
// tokens before, or null where the text would end within a character.
export function alternativeStart(message, index, alternative) {
    const kept = message.tokens.slice(0, index);
    const chosen = {
        ...message.tokens[index].top[alternative],
        part: 'content',
        top: message.tokens[index].top,
    };
    const tokens = [...kept.filter((t) => t.part === 'content'), chosen];
    const content = tokensText(tokens);
    return content === null ? null : { content, tokens };
}
