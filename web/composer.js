// The box that messages are written in: text, attached files, the draft of each conversation, and
// what Enter does.
import { isLongPaste, pastedFile, readTextFile } from './attachments.js';
import { byId, el, icon, iconButton } from './dom.js';
import { draftId, isEmpty, readDraft, writeDraft } from './drafts.js';
import { fileChip } from './file-view.js';
import { isSend, isTouch } from './keys.js';

const SAVE_AFTER = 300; // ms without typing

export class Composer {
    // on: {changed(), resized(), failed(text)}
    constructor(chat, on) {
        this.chat = chat;
        this.on = on;
        this.input = byId('input');
        this.files = [];
        this.button = iconButton('clip', 'Attach text files', () => byId('attach-file').click());
        byId('input').before(this.button);
        byId('attach-file').addEventListener('change', ({ target }) => {
            this.attach([...target.files]);
            target.value = '';
        });
        this.input.addEventListener('input', () => this.changed());
        this.input.addEventListener('keydown', (event) => this.onKey(event));
        this.input.addEventListener('paste', (event) => this.onPaste(event));
        // A phone that is turned, a panel that opens, a larger font: lines break elsewhere.
        new ResizeObserver(() => {
            const { clientWidth } = this.input;
            const shape = `${clientWidth} ${getComputedStyle(this.input).fontSize}`;
            if (shape !== this.shape) this.grow();
            this.shape = shape;
        }).observe(this.input);
        this.listenForDrops(document.querySelector('main'));
        byId('composer').addEventListener('submit', (event) => {
            event.preventDefault();
            if (chat.isBusy()) chat.stop();
            else this.submit();
        });
        addEventListener('pagehide', () => this.keep());
        byId('hint').replaceChildren(
            ...(isTouch()
                ? []
                : [
                      el('span', {}, el('kbd', {}, 'Enter'), ' sends'),
                      el(
                          'span',
                          {},
                          el('kbd', {}, 'Shift'),
                          ' ',
                          el('kbd', {}, 'Enter'),
                          ' starts a new line',
                      ),
                      el('span', {}, el('kbd', {}, '?'), ' lists shortcuts'),
                  ]),
        );
        this.input.setAttribute('enterkeyhint', isTouch() ? 'enter' : 'send');
    }

    draft() {
        return { text: this.input.value, files: this.files };
    }

    isEmpty() {
        return isEmpty(this.draft());
    }

    // The draft of the conversation that is shown now; the one before keeps its own.
    show() {
        const id = draftId(this.chat);
        if (id === this.id) return;
        this.keep();
        this.load(id);
    }

    load(id) {
        const { text, files } = readDraft(id);
        this.id = id;
        this.input.value = text;
        this.files = files;
        this.showFiles();
        this.grow();
        this.showState();
    }

    keep() {
        clearTimeout(this.timer);
        if (this.id) writeDraft(this.id, this.draft());
    }

    clear() {
        this.input.value = '';
        this.files = [];
        this.showFiles();
        this.keep();
        this.grow();
    }

    changed() {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.keep(), SAVE_AFTER);
        if (this.isEmpty()) this.chat.queue(false);
        this.grow();
        this.showState();
        this.on.changed();
    }

    grow() {
        this.input.style.height = 'auto';
        this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
        this.on.resized();
    }

    // While an answer is being written, the message waits for its end.
    submit() {
        const { chat } = this;
        if (this.isEmpty()) return;
        if (chat.isBusy()) {
            this.keep();
            chat.queue(true);
            this.showState();
            return;
        }
        const { text, files } = this.draft();
        this.clear();
        chat.send({ text: text.trim(), files });
    }

    onKey(event) {
        if (!isSend(event)) return;
        event.preventDefault();
        this.submit();
    }

    // ---- files ----

    async attach(files) {
        for (const file of files) {
            try {
                const read = await readTextFile(file);
                this.files = [...this.files, read];
            } catch (error) {
                this.on.failed(error.message);
            }
        }
        this.showFiles();
        this.changed();
        this.input.focus();
    }

    onPaste(event) {
        const files = [...event.clipboardData.files];
        const text = event.clipboardData.getData('text/plain');
        if (files.length && !text) {
            event.preventDefault();
            this.attach(files);
        } else if (isLongPaste(text)) {
            event.preventDefault();
            this.files = [...this.files, pastedFile(text)];
            this.showFiles();
            this.changed();
        }
    }

    listenForDrops(target) {
        const hasFiles = (event) => event.dataTransfer?.types.includes('Files');
        target.addEventListener('dragover', (event) => {
            if (!hasFiles(event)) return;
            event.preventDefault();
            target.classList.add('dropping');
        });
        target.addEventListener('dragleave', (event) => {
            if (!target.contains(event.relatedTarget)) target.classList.remove('dropping');
        });
        target.addEventListener('drop', (event) => {
            target.classList.remove('dropping');
            if (!hasFiles(event)) return;
            event.preventDefault();
            this.attach([...event.dataTransfer.files]);
        });
    }

    showFiles() {
        const list = byId('attached');
        list.hidden = !this.files.length;
        list.replaceChildren(
            ...this.files.map((file) =>
                fileChip(file, () => {
                    this.files = this.files.filter((other) => other !== file);
                    this.showFiles();
                    this.changed();
                    this.input.focus();
                }),
            ),
        );
    }

    // ---- what the button does, and what waits ----

    showState() {
        const busy = this.chat.isBusy();
        const send = byId('send');
        const label = busy ? 'Stop' : 'Send';
        send.replaceChildren(icon(busy ? 'stop' : 'send'));
        send.title = busy ? 'Stop (Escape)' : 'Send';
        send.setAttribute('aria-label', label);
        send.classList.toggle('stop', busy);
        send.disabled = !busy && this.isEmpty();
        this.showQueued(busy && this.chat.queued.has(this.chat.current.id));
    }

    showQueued(queued) {
        const line = byId('queued');
        line.hidden = !queued;
        line.replaceChildren(
            'This message will be sent when the answer is complete.',
            el(
                'button',
                {
                    type: 'button',
                    onclick: () => {
                        this.chat.queue(false);
                        this.showState();
                        this.input.focus();
                    },
                },
                'Don’t send',
            ),
        );
    }
}
