// Which model answers: its name where the server has one, a choice where it has several. Those are
// loaded when they are first asked, and only then is their context known.
import * as api from './api.js';
import { byId, el } from './dom.js';
import { plural } from './format.js';

const KEY = 'fletch-model';
const EVERY = 1000; // ms between attempts to reach the server

export class ModelPicker {
    // changed({model, nCtx}) is called when the model is known, and when another is chosen.
    constructor(changed, failed) {
        this.element = byId('model');
        this.changed = changed;
        this.failed = failed;
        this.models = [];
    }

    say(text) {
        this.element.replaceChildren(el('span', { class: 'chip' }, text));
        this.element.hidden = false;
    }

    // Asks until the server answers and, where there is only one model, until it is loaded.
    async connect() {
        for (;;) {
            try {
                await this.refresh();
                if (this.models.length > 1 || this.models[0].ready) return;
                this.say('The model is being loaded');
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
        this.models = (await api.status()).models;
        this.show();
    }

    show() {
        const kept = localStorage.getItem(KEY);
        const { model, n_ctx: nCtx } = this.models.find((m) => m.model === kept) ?? this.models[0];
        if (this.models.length === 1) this.say(model);
        else {
            const options = this.models.map((m) =>
                el('option', { selected: m.model === model }, m.model),
            );
            const select = el('select', { class: 'chip', 'aria-label': 'Model' }, options);
            select.addEventListener('change', () => {
                localStorage.setItem(KEY, select.value);
                this.show();
            });
            this.element.replaceChildren(select);
            this.element.hidden = false;
        }
        this.element.title = nCtx ? `Context of ${plural(nCtx, 'token')}` : 'Not loaded yet';
        this.changed({ model, nCtx });
    }
}
