// Which model answers: its name where the server has one, a choice where it has several. Those are
// loaded when they are first asked, and only then is their context known. A conversation keeps to
// the model that answered last, where the server still has it.
import * as api from './api.js';
import { byId, el } from './dom.js';
import { bytes, plural } from './format.js';
import { local } from './local.js';

const KEY = 'fletch-model';
const EVERY = 1000; // ms between attempts to reach the server
const TYPE = /(?:^|[-._])((?:iq|q)\d\w*|bf16|f16|f32|mxfp4)(?:$|[-.])/i; // in a file's name

const describe = (m) =>
    [
        m.model,
        m.weight_bytes > 0 && bytes(m.weight_bytes),
        m.type || TYPE.exec(m.model)?.[1].toUpperCase(),
        m.ready ? 'loaded' : 'not loaded',
    ]
        .filter(Boolean)
        .join(' · ');

export class ModelPicker {
    // changed(server) is called when the model is known, and when another is chosen: {model, nCtx,
    // sampling, …}. replaced(before, now): the server has other models than before.
    constructor(changed, replaced, failed) {
        this.element = byId('model');
        this.changed = changed;
        this.replaced = replaced;
        this.failed = failed;
        this.models = [];
        this.wanted = null; // of the conversation that is shown
        this.shown = null;
        this.connecting = null;
    }

    say(text) {
        this.element.replaceChildren(el('span', { class: 'chip' }, text));
        this.element.hidden = false;
    }

    // Asks until the server answers and, where there is only one model, until it is loaded.
    connect() {
        this.connecting ??= this.keepAsking().finally(() => {
            this.connecting = null;
        });
        return this.connecting;
    }

    async keepAsking() {
        for (;;) {
            try {
                await this.refresh();
                if (this.models.length > 1 || this.models[0].ready) return;
                this.say('Loading the model');
            } catch (error) {
                this.say('Not connected');
                if (error.status === 401) {
                    this.failed(error.message);
                    return;
                }
            }
            await new Promise((resolve) => {
                setTimeout(resolve, EVERY);
            });
        }
    }

    async refresh() {
        const before = this.shown;
        this.models = (await api.status()).models;
        this.show();
        if (before && !this.models.some((m) => m.model === before))
            this.replaced(before, this.shown);
    }

    // The conversation that is shown now was answered by this model; '' or null: by none yet.
    want(model) {
        this.wanted = model || null;
        if (this.models.length) this.show();
    }

    chosen() {
        const of = (name) => this.models.find((m) => m.model === name);
        return of(this.wanted) ?? of(local.get(KEY)) ?? this.models[0];
    }

    show() {
        const chosen = this.chosen();
        const { model, n_ctx: nCtx } = chosen;
        if (this.models.length === 1) this.say(model);
        else {
            const options = this.models.map((m) =>
                el('option', { value: m.model, selected: m.model === model }, describe(m)),
            );
            const select = el('select', { class: 'chip', 'aria-label': 'Model' }, options);
            select.addEventListener('change', () => {
                local.set(KEY, select.value);
                this.wanted = select.value;
                this.show();
            });
            this.element.replaceChildren(select);
            this.element.hidden = false;
        }
        const context = nCtx
            ? `context of ${plural(nCtx, 'token')}`
            : 'context length not known yet';
        this.element.title = `${describe(chosen)}; ${context}`;
        this.shown = model;
        this.changed({ ...chosen, nCtx });
    }
}
