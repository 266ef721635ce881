// Two copies of a conversation, from two tabs or from a file, become one: messages are matched by
// id, and of a message that both have the later version counts. No DOM here.

// Of these, the one that was changed last counts; `stamps` has the times.
const FIELDS = ['title', 'settings', 'pinned', 'model'];

const byAge = (nodes) => (a, b) => (nodes.get(a).created ?? 0) - (nodes.get(b).created ?? 0);

function mergeNode(ours, node) {
    const own = ours.nodes.get(node.id);
    if (!own) {
        ours.nodes.set(node.id, { ...node, children: [...node.children] });
        return true;
    }
    if ((node.changed ?? 0) <= (own.changed ?? 0)) return false;
    const { parent, children, chosen } = own;
    delete own.tokens; // those of the earlier version
    Object.assign(own, node, { parent, children, chosen });
    return true;
}

// Which branch is shown stays as it is. A file may lie about parents, which must not make a circle.
function mergeChildren(ours, { id, children, chosen }) {
    const own = ours.nodes.get(id);
    const more = children.filter(
        (child) => !own.children.includes(child) && ours.nodes.get(child).parent === id,
    );
    if (more.length) own.children = [...own.children, ...more].sort(byAge(ours.nodes));
    if (own.children.includes(chosen)) own.chosen ??= chosen;
}

// Takes into `ours` what it lacks of `theirs`; says whether there was anything.
export function mergeConversation(ours, theirs) {
    let news = false;
    for (const node of theirs.nodes.values()) news = mergeNode(ours, node) || news;
    for (const node of theirs.nodes.values()) mergeChildren(ours, node);
    for (const field of FIELDS) {
        const theirTime = theirs.stamps?.[field] ?? 0;
        if (theirTime <= (ours.stamps?.[field] ?? 0)) continue;
        ours[field] = theirs[field];
        ours.stamps = { ...ours.stamps, [field]: theirTime };
        news = true;
    }
    ours.changed = Math.max(ours.changed, theirs.changed);
    return news;
}

// A copy that can be merged into and kept, without what is only known in memory.
export const plainCopy = (conversation) => ({
    ...conversation,
    nodes: new Map(
        [...conversation.nodes].map(([id, { tokens, ...node }]) => [
            id,
            { ...node, children: [...node.children] },
        ]),
    ),
});
