// A conversation is a tree of messages: editing or asking again adds a sibling instead of replacing
// anything. Each node remembers which child is shown. No DOM here.

export const ROOT = 'root';

export function newId() {
    return [...crypto.getRandomValues(new Uint8Array(12))]
        .map((b) => b.toString(16).padStart(2, '0'))
        .join('');
}

// Map of id to node {id, parent, children, chosen, role, …}
export function newTree() {
    return new Map([[ROOT, { id: ROOT, parent: null, children: [], chosen: null, role: 'root' }]]);
}

// Adds a message under a node and shows it.
export function addNode(nodes, parentId, message) {
    const parent = nodes.get(parentId);
    if (!parent) throw new Error(`there is no message ${parentId}`);
    const now = Date.now();
    const node = {
        created: now,
        changed: now, // of two copies of a message the later one counts
        ...message,
        id: message.id ?? newId(),
        parent: parentId,
        children: [],
        chosen: null,
    };
    if (nodes.has(node.id)) throw new Error(`there are two messages ${node.id}`);
    nodes.set(node.id, node);
    parent.children.push(node.id);
    parent.chosen = node.id;
    return node;
}

// The messages that are shown, first to last.
export function shownPath(nodes) {
    const path = [];
    for (let node = nodes.get(ROOT); node.chosen; path.push(node)) node = nodes.get(node.chosen);
    return path;
}

// The messages from the first one down to and with this one.
export function pathTo(nodes, id) {
    const path = [];
    for (let node = nodes.get(id); node.parent; node = nodes.get(node.parent)) path.unshift(node);
    return path;
}

export function siblings(nodes, id) {
    const ids = nodes.get(nodes.get(id).parent).children;
    return { ids, index: ids.indexOf(id) };
}

// Shows the sibling `step` places on, if there is one.
export function switchBranch(nodes, id, step) {
    const { ids, index } = siblings(nodes, id);
    const next = ids[index + step];
    if (next) nodes.get(nodes.get(id).parent).chosen = next;
    return next ?? id;
}

// A try that brought nothing, so that another one takes its place instead of becoming a branch.
export const isFailed = (node) =>
    node.role === 'assistant' &&
    !node.children.length &&
    Boolean(node.error || !(node.content || node.reasoning || node.toolCalls.length));
