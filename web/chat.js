// The conversations and the answers that are being written: what the buttons do. Tells its
// listeners what changed and knows nothing of elements.
import { addChunk, alternativeStart, newAnswer, newProgress } from './answer.js';
import * as api from './api.js';
import { answerRoom, fitContext } from './context.js';
import { newConversation, setField } from './conversation.js';
import { draftId, isEmpty, readDraft, writeDraft } from './drafts.js';
import { local } from './local.js';
import { mergeConversation } from './merge.js';
import { asCurl, DEFAULTS, promptBody, requestBody } from './request.js';
import * as store from './store.js';
import { Tabs } from './tabs.js';
import { addNode, isFailed, pathTo, ROOT, shownPath, switchBranch } from './tree.js';

const SETTINGS_KEY = 'fletch-settings'; // of new conversations
const SAVE_EVERY = 1000; // ms, while an answer is being written
const LOST = [0, 404]; // statuses after which the server may have other models

const randomSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

export class Chat {
    // on: {list(), conversation(), merged(conversation), node(conversation, node),
    // settled(conversation, node), unqueued(conversation), failed(text, lasting), lost()}
    constructor(on) {
        this.on = on;
        this.conversations = new Map();
        this.runs = new Map(); // conversation id → {node, progress, abort}
        this.queued = new Set(); // ids of conversations whose draft is sent after the answer
        this.server = { model: null, nCtx: null, sampling: null };
        this.keeps = true;
        this.tabs = new Tabs((id) => this.readFromOtherTab(id));
        this.current = newConversation(this.defaults());
    }

    defaults() {
        return { ...DEFAULTS, ...local.getJson(SETTINGS_KEY, {}) };
    }

    setDefaults(settings) {
        local.setJson(SETTINGS_KEY, settings);
    }

    async load() {
        try {
            for (const c of await store.loadConversations()) this.conversations.set(c.id, c);
        } catch (error) {
            this.keeps = false;
            this.on.failed(
                'This browser blocks site data, so conversations are kept in memory and lost when ' +
                    `you close this tab. “Export all” saves them as a file. (${error.message})`,
                true,
            );
        }
        this.on.list();
    }

    async save(conversation) {
        if (!this.keeps || !this.conversations.has(conversation.id)) return;
        try {
            const before = await store.saveConversation(conversation);
            if (before && mergeConversation(conversation, before)) this.on.merged(conversation);
            this.tabs.tell(conversation.id);
        } catch (error) {
            this.on.failed(
                `This conversation could not be saved: ${error.message}. It is kept in this tab; ` +
                    '“Export all” saves it as a file.',
                true,
            );
        }
    }

    // Another tab has saved or deleted this conversation.
    async readFromOtherTab(id) {
        const unknown = {}; // it can't be read now
        const theirs = await store.loadConversation(id).catch(() => unknown);
        const ours = this.conversations.get(id);
        if (theirs === unknown) return;
        if (!theirs) this.forget(id);
        else if (!ours) this.conversations.set(id, theirs);
        else if (mergeConversation(ours, theirs)) this.on.merged(ours);
        this.on.list();
    }

    // ---- conversations ----

    open(id) {
        this.current = this.conversations.get(id) ?? newConversation(this.defaults());
        this.on.conversation();
        this.on.list();
    }

    change(conversation, field, value) {
        setField(conversation, field, value);
        this.save(conversation);
        this.on.list();
    }

    forget(id) {
        this.runs.get(id)?.abort.abort();
        this.conversations.delete(id);
        if (id === this.current.id) this.open(null);
    }

    async remove(conversation) {
        const { id } = conversation;
        this.forget(id);
        writeDraft(id, { text: '', files: [] });
        this.on.list();
        if (!this.keeps) return;
        await store.deleteConversation(id).catch((error) => this.on.failed(error.message));
        this.tabs.tell(id);
    }

    // Takes in conversations from a file. Of one that is here already only what is new in the file
    // is taken. Resolves to how many were added, extended, and here already.
    async adopt(conversations) {
        const said = { added: 0, extended: 0, same: 0 };
        for (const c of conversations) {
            const own = this.conversations.get(c.id);
            if (!own) {
                this.conversations.set(c.id, c);
                said.added++;
            } else if (mergeConversation(own, c)) {
                said.extended++;
                this.on.merged(own);
            } else said.same++;
            await this.save(this.conversations.get(c.id));
        }
        this.on.list();
        return said;
    }

    changeSettings(settings) {
        setField(this.current, 'settings', settings);
        this.save(this.current);
    }

    // ---- messages ----

    isBusy() {
        return this.runs.has(this.current.id);
    }

    add(conversation, parentId, message) {
        this.conversations.set(conversation.id, conversation);
        return addNode(conversation.nodes, parentId, message);
    }

    // message: {text, files}
    send({ text, files = [] }, conversation = this.current) {
        const last = shownPath(conversation.nodes).at(-1);
        const question = { role: 'user', content: text, ...(files.length && { files }) };
        const { id } = this.add(conversation, last?.id ?? ROOT, question);
        return this.answer(conversation, id);
    }

    // The draft is sent when the answer that is being written is complete.
    queue(wanted) {
        if (wanted) this.queued.add(this.current.id);
        else this.queued.delete(this.current.id);
    }

    sendQueued(conversation, node) {
        if (!this.queued.delete(conversation.id)) return;
        const id = draftId(this, conversation);
        const draft = readDraft(id);
        // After a failure it stays in the composer.
        if (isEmpty(draft) || node.error || node.finish === 'stopped') return;
        writeDraft(id, { text: '', files: [] });
        this.on.unqueued(conversation);
        this.send({ ...draft, text: draft.text.trim() }, conversation);
    }

    // An edited question is asked beside the first one; an edited answer is kept as it is written.
    edit(node, text) {
        const { current } = this;
        if (node.role === 'assistant') {
            this.add(current, node.parent, { ...newAnswer(text), finish: 'edited' });
            this.save(current);
            this.on.conversation();
            return;
        }
        const { role, toolCallId, files } = node;
        const edited = { role, content: text, toolCallId, ...(files && { files }) };
        this.answer(current, this.add(current, node.parent, edited).id);
    }

    // A try that failed is made again in its place; otherwise another answer is a branch.
    // settings: what is different for this answer alone
    regenerate(node, settings = {}) {
        if (!isFailed(node)) {
            this.answer(this.current, node.parent, settings);
            return;
        }
        Object.assign(node, newAnswer());
        this.run(this.current, node, { settings });
    }

    // Whether another answer would be this one again: null, or why ("temperature" or "seed").
    whySame(node) {
        const { settings } = this.current;
        if (isFailed(node) || !['stop', 'length', 'tool_calls'].includes(node.finish)) return null;
        if ((settings.temperature ?? this.server.sampling?.temperature) === 0) return 'temperature';
        return settings.seed != null ? 'seed' : null;
    }

    // Goes on where an answer was cut off.
    continueAnswer(node) {
        this.run(this.current, node, { continueLast: true });
    }

    async continueFrom(node, index, alternative) {
        const { current } = this;
        const start = alternativeStart(
            { ...node, tokens: await this.tokens(node) },
            index,
            alternative,
        );
        if (!start) return;
        const answer = {
            ...newAnswer(start.content, start.tokens),
            reasoning: node.reasoning,
        };
        this.run(current, this.add(current, node.parent, answer), { continueLast: true });
    }

    // results: one text for each of the node's tool calls
    answerTools(node, results) {
        const last = results.reduce(
            (parent, content, i) =>
                this.add(this.current, parent.id, {
                    role: 'tool',
                    toolCallId: node.toolCalls[i].id,
                    content,
                }),
            node,
        );
        this.answer(this.current, last.id);
    }

    switchTo(node, step) {
        switchBranch(this.current.nodes, node.id, step);
        this.save(this.current);
        this.on.conversation();
    }

    async tokens(node, conversation = this.current) {
        node.tokens ??= this.keeps ? await store.loadTokens(conversation.id, node.id) : [];
        return node.tokens;
    }

    // ---- requests ----

    answer(conversation, parentId, settings) {
        return this.run(conversation, this.add(conversation, parentId, newAnswer()), { settings });
    }

    stop() {
        this.runs.get(this.current.id)?.abort.abort();
    }

    // Another conversation than the one that is shown keeps to the model it had.
    serverOf(conversation) {
        const { server } = this;
        const { model } = conversation;
        if (conversation === this.current || !model || model === server.model) return server;
        return { model, nCtx: null };
    }

    promptBody(settings, path, model = this.server.model) {
        return { model, ...promptBody(settings, path) };
    }

    // What fits of these messages, and how much of the context they take; null: not known.
    async fit(path, settings, signal, { model, nCtx } = this.server) {
        if (!nCtx || !path.length) return null;
        const room = answerRoom(nCtx, settings.max_tokens);
        const countTokens = async (part) =>
            (await api.applyTemplate(this.promptBody(settings, part, model), signal)).n_tokens;
        return { nCtx, ...(await fitContext(path, countTokens, nCtx - room)) };
    }

    // The request that made an answer, as it would be sent now.
    curl(node) {
        const { nodes, settings } = this.current;
        const path = pathTo(nodes, node.parent).slice(node.stats?.omitted ?? 0);
        const { seed, temperature } = node.stats ?? {};
        const used = { ...settings, ...(temperature != null && { temperature }) };
        used.seed = seed ?? settings.seed;
        const body = requestBody(used, path, { model: this.server.model });
        return asCurl(location.origin, body, api.hasKey());
    }

    // Resolves when the answer has ended.
    async run(conversation, node, { continueLast = false, settings: own = {} } = {}) {
        if (this.runs.has(conversation.id)) return;
        const server = this.serverOf(conversation);
        const run = {
            node,
            progress: newProgress(performance.now()),
            abort: new AbortController(),
            settings: { ...conversation.settings, ...own },
            continueLast,
            server,
        };
        Object.assign(node, { finish: null, error: null, stats: { seed: randomSeed(), ...own } });
        if (server.model && server.model !== conversation.model)
            setField(conversation, 'model', server.model);
        this.runs.set(conversation.id, run);
        this.stamp(conversation, node);
        this.on.conversation();
        const heartbeat = setInterval(() => this.stamp(conversation, node), SAVE_EVERY);
        try {
            await this.stamp(conversation, node); // saved before it is sent
            await this.tokens(node, conversation);
            await this.stream(conversation, run);
            const { model } = node.stats; // a server that was restarted may have another
            if (model && server.model && model !== server.model) this.on.lost();
        } catch (error) {
            if (run.abort.signal.aborted) node.finish = 'stopped';
            else node.error = error.message;
            if (!run.abort.signal.aborted && LOST.includes(error.status)) this.on.lost();
        }
        clearInterval(heartbeat);
        this.runs.delete(conversation.id);
        await this.stamp(conversation, node);
        if (node.tokens?.length && this.keeps)
            await store.saveTokens(conversation.id, node.id, node.tokens).catch(() => {});
        this.on.settled(conversation, node);
        this.sendQueued(conversation, node);
    }

    // The message is as of now; other tabs see by this that it is still being written.
    stamp(conversation, node) {
        node.changed = conversation.changed = Date.now();
        return this.save(conversation);
    }

    async stream(conversation, { node, progress, abort: { signal }, ...run }) {
        const { server, settings, continueLast } = run;
        const path = pathTo(conversation.nodes, continueLast ? node.id : node.parent);
        // Where the tokens can't be counted, everything is sent, and the server refuses too much.
        const fit = await this.fit(path, settings, signal, server).catch(() => null);
        signal.throwIfAborted();
        node.stats.omitted = fit?.dropped ?? 0;
        const body = requestBody(settings, path.slice(node.stats.omitted), {
            model: server.model,
            continueLast,
            seed: node.stats.seed,
        });
        node.stats.seed = body.seed;
        for await (const chunk of api.chat(body, signal)) {
            addChunk(node, progress, chunk, performance.now());
            this.on.node(conversation, node);
        }
    }
}
