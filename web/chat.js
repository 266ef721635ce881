// The conversations and the answers that are being written: what the buttons do. Tells its
// listeners what changed and knows nothing of elements.
import { addChunk, alternativeStart, newAnswer, newProgress } from './answer.js';
import * as api from './api.js';
import { answerRoom, fitContext } from './context.js';
import { newConversation } from './conversation.js';
import { shorten } from './format.js';
import { asCurl, DEFAULTS, promptBody, requestBody } from './request.js';
import * as store from './store.js';
import { addNode, newId, pathTo, ROOT, shownPath, switchBranch } from './tree.js';

const SETTINGS_KEY = 'fletch-settings'; // of new conversations
const SAVE_EVERY = 1000; // ms, while an answer streams in

const randomSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

export class Chat {
    // on: {list(), conversation(), node(node), settled(node), failed(text)}
    constructor(on) {
        this.on = on;
        this.conversations = new Map();
        this.runs = new Map(); // conversation id → {node, progress, abort}
        this.server = { model: null, nCtx: null };
        this.keeps = true;
        this.current = newConversation(this.defaults());
    }

    defaults() {
        try {
            return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(SETTINGS_KEY)) };
        } catch {
            return DEFAULTS;
        }
    }

    setDefaults(settings) {
        localStorage.setItem(SETTINGS_KEY, JSON.stringify(settings));
    }

    async load() {
        try {
            for (const c of await store.loadConversations()) this.conversations.set(c.id, c);
        } catch (error) {
            this.keeps = false;
            this.on.failed(`Conversations can’t be kept in this browser: ${error.message}`);
        }
        this.on.list();
    }

    async save(conversation) {
        if (!this.keeps || !this.conversations.has(conversation.id)) return;
        try {
            await store.saveConversation(conversation);
        } catch (error) {
            this.on.failed(`This conversation could not be kept: ${error.message}`);
        }
    }

    // ---- conversations ----

    open(id) {
        this.current = this.conversations.get(id) ?? newConversation(this.defaults());
        this.on.conversation();
        this.on.list();
    }

    rename(conversation, title) {
        conversation.title = title;
        this.save(conversation);
        this.on.list();
    }

    remove(conversation) {
        this.runs.get(conversation.id)?.abort.abort();
        this.conversations.delete(conversation.id);
        if (this.keeps)
            store
                .deleteConversation(conversation.id)
                .catch((error) => this.on.failed(error.message));
        if (conversation === this.current) this.open(null);
        else this.on.list();
    }

    // Takes in conversations from a file; one that is here already comes in as a copy.
    async adopt(conversations) {
        for (const c of conversations) {
            if (this.conversations.has(c.id)) c.id = newId();
            this.conversations.set(c.id, c);
            await this.save(c);
        }
        this.on.list();
        return conversations.length;
    }

    changeSettings(settings) {
        this.current.settings = settings;
        this.save(this.current);
    }

    // ---- messages ----

    isBusy() {
        return this.runs.has(this.current.id);
    }

    add(parentId, message) {
        const conversation = this.current;
        this.conversations.set(conversation.id, conversation);
        conversation.title ||= shorten(message.content.trim().split('\n')[0], 60);
        return addNode(conversation.nodes, parentId, message);
    }

    send(text) {
        const last = shownPath(this.current.nodes).at(-1);
        this.answer(this.add(last?.id ?? ROOT, { role: 'user', content: text }).id);
    }

    // An edited question is asked beside the first one; an edited answer just stands there.
    edit(node, text) {
        if (node.role === 'assistant') {
            this.add(node.parent, { ...newAnswer(text), finish: 'edited' });
            this.save(this.current);
            this.on.conversation();
        } else
            this.answer(
                this.add(node.parent, {
                    role: node.role,
                    content: text,
                    toolCallId: node.toolCallId,
                }).id,
            );
    }

    regenerate(node) {
        this.answer(node.parent);
    }

    // Goes on where an answer was cut off.
    continueAnswer(node) {
        this.run(node, true);
    }

    async continueFrom(node, index, alternative) {
        const start = alternativeStart(
            { ...node, tokens: await this.tokens(node) },
            index,
            alternative,
        );
        if (!start) return;
        this.run(
            this.add(node.parent, {
                ...newAnswer(start.content, start.tokens),
                reasoning: node.reasoning,
            }),
            true,
        );
    }

    // results: one text for each of the node's tool calls
    answerTools(node, results) {
        const last = results.reduce(
            (parent, content, i) =>
                this.add(parent.id, { role: 'tool', toolCallId: node.toolCalls[i].id, content }),
            node,
        );
        this.answer(last.id);
    }

    switchTo(node, step) {
        switchBranch(this.current.nodes, node.id, step);
        this.save(this.current);
        this.on.conversation();
    }

    async tokens(node) {
        node.tokens ??= this.keeps ? await store.loadTokens(this.current.id, node.id) : [];
        return node.tokens;
    }

    // ---- requests ----

    answer(parentId) {
        this.run(this.add(parentId, newAnswer()), false);
    }

    stop() {
        this.runs.get(this.current.id)?.abort.abort();
    }

    promptBody(settings, path) {
        return { model: this.server.model, ...promptBody(settings, path) };
    }

    // What fits of these messages, and how much of the context they take; null while nobody knows.
    async fit(path, settings, signal) {
        const { nCtx } = this.server;
        if (!nCtx || !path.length) return null;
        const room = answerRoom(nCtx, settings.max_tokens);
        const countTokens = async (part) =>
            (await api.applyTemplate(this.promptBody(settings, part), signal)).n_tokens;
        return { nCtx, ...(await fitContext(path, countTokens, nCtx - room)) };
    }

    body(conversation, path, continueLast, seed) {
        return requestBody(conversation.settings, path, {
            model: this.server.model,
            continueLast,
            seed,
        });
    }

    // The request that made an answer, as it would be sent now.
    curl(node) {
        const path = pathTo(this.current.nodes, node.parent).slice(node.stats?.omitted ?? 0);
        return asCurl(
            location.origin,
            this.body(this.current, path, false, node.stats?.seed),
            api.hasKey(),
        );
    }

    async run(node, continueLast) {
        const conversation = this.current;
        if (this.runs.has(conversation.id)) return;
        const run = {
            node,
            progress: newProgress(performance.now()),
            abort: new AbortController(),
        };
        Object.assign(node, { finish: null, error: null, stats: { seed: randomSeed() } });
        this.runs.set(conversation.id, run);
        this.on.conversation();
        try {
            await this.tokens(node);
            await this.stream(conversation, run, continueLast);
        } catch (error) {
            if (run.abort.signal.aborted) node.finish = 'stopped';
            else node.error = error.message;
        }
        this.runs.delete(conversation.id);
        conversation.changed = Date.now();
        await this.save(conversation);
        if (node.tokens.length && this.keeps)
            await store.saveTokens(conversation.id, node.id, node.tokens).catch(() => {});
        this.on.settled(conversation, node);
    }

    async stream(conversation, run, continueLast) {
        const {
            node,
            progress,
            abort: { signal },
        } = run;
        const path = pathTo(conversation.nodes, continueLast ? node.id : node.parent);
        // Where nobody can count, everything is sent, and the server says if it is too long.
        const fit = await this.fit(path, conversation.settings, signal).catch(() => null);
        signal.throwIfAborted();
        node.stats.omitted = fit?.dropped ?? 0;
        const body = this.body(
            conversation,
            path.slice(node.stats.omitted),
            continueLast,
            node.stats.seed,
        );
        node.stats.seed = body.seed;
        let saved = performance.now();
        for await (const chunk of api.chat(body, signal)) {
            const now = performance.now();
            addChunk(node, progress, chunk, now);
            this.on.node(conversation, node);
            if (now - saved > SAVE_EVERY) {
                saved = now;
                this.save(conversation);
            }
        }
    }
}
