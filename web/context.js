// What still fits into the model's context. When a conversation has grown too long, its oldest
// exchanges are left out of the request; never silently: the page says which. No DOM here.

export const NEARLY_FULL = 0.8;

// Room that is kept for the answer.
export const answerRoom = (nCtx, maxTokens) =>
    Math.min(maxTokens ?? Infinity, Math.floor(nCtx / 4));

// Where a conversation may begin: at a user's message. The last one always stays.
export function beginnings(path) {
    const starts = path.flatMap((node, i) => (i > 0 && node.role === 'user' ? [i] : []));
    return [0, ...starts];
}

// How many messages at the front have to be left out so that the rest is at most `limit` tokens.
// countTokens(path) is asked O(log n) times. When not even the last exchange fits it is kept
// anyway: the server's refusal names both numbers.
export async function fitContext(path, countTokens, limit) {
    const starts = beginnings(path);
    const total = await countTokens(path);
    if (total <= limit) return { dropped: 0, total, tokens: total };
    let low = 1,
        high = starts.length - 1;
    while (low < high) {
        const middle = (low + high) >> 1;
        if ((await countTokens(path.slice(starts[middle]))) <= limit) high = middle;
        else low = middle + 1;
    }
    const dropped = starts[Math.min(low, starts.length - 1)];
    return { dropped, total, tokens: dropped ? await countTokens(path.slice(dropped)) : total };
}
