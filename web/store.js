// Keeps conversations in the browser (IndexedDB). Token probabilities are much larger than the text
// they belong to, so they lie apart and are read only when somebody looks at them.

const promised = (request) =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

let opening = null;

function open() {
    opening ??= (() => {
        const request = indexedDB.open('fletch', 1);
        request.onupgradeneeded = () => {
            request.result.createObjectStore('conversations', { keyPath: 'id' });
            request.result.createObjectStore('tokens', { keyPath: ['conversation', 'node'] });
        };
        return promised(request);
    })();
    return opening;
}

// Runs one transaction; resolves when it is on disk.
async function transact(mode, use) {
    const transaction = (await open()).transaction(['conversations', 'tokens'], mode);
    const done = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error);
    });
    const result = use(transaction.objectStore('conversations'), transaction.objectStore('tokens'));
    const value = result instanceof IDBRequest ? await promised(result) : result;
    await done;
    return value;
}

const tokensOf = (id) => IDBKeyRange.bound([id], [id, []]);

export const loadConversations = () =>
    transact('readonly', (conversations) => conversations.getAll());

export const loadTokens = async (id, node) =>
    (await transact('readonly', (_, tokens) => tokens.get([id, node])))?.tokens ?? [];

export const saveTokens = (id, node, tokens) =>
    transact('readwrite', (_, store) => store.put({ conversation: id, node, tokens }));

// Messages without what is only known while they are in memory.
export const saveConversation = (conversation) =>
    transact('readwrite', (conversations) => {
        const nodes = [...conversation.nodes].map(([id, { tokens, ...node }]) => [id, node]);
        return conversations.put({ ...conversation, nodes: new Map(nodes) });
    });

export const deleteConversation = (id) =>
    transact('readwrite', (conversations, tokens) => {
        tokens.delete(tokensOf(id));
        return conversations.delete(id);
    });
