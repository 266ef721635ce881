// The prompt exactly as the model sees it: the chat template applied to the messages that would be
// sent now, with the template's own marks set apart, and its token ids.
import { copyText, el, iconButton } from './dom.js';
import { plural } from './format.js';

// What templates use as marks. Only for display, so a wrong match does no harm.
const MARK = /(<\|[^<>|\n]{1,40}\|>|<\/?[a-z_]{1,20}>|\[\/?[A-Z_]{2,20}\])/g;

const marked = (text) => text.split(MARK).map((part, i) => (i % 2 ? el('mark', {}, part) : part));

export class PromptView {
    // load(): resolves to the answer of /apply-template, or null when there is no message yet.
    constructor(load) {
        this.label = 'Prompt';
        this.icon = 'text';
        this.load = load;
        this.element = el('div', { class: 'prompt' });
        this.open = false;
        this.turn = 0;
    }

    shown() {
        this.open = true;
        this.refresh();
    }

    hidden() {
        this.open = false;
    }

    async refresh() {
        if (!this.open) return;
        const turn = ++this.turn; // a later request may be answered first
        let nodes;
        try {
            nodes = this.nodes(await this.load());
        } catch (error) {
            nodes = [el('p', { class: 'error', role: 'alert' }, error.message)];
        }
        if (turn === this.turn) this.element.replaceChildren(...nodes);
    }

    nodes(rendered) {
        if (!rendered)
            return [
                el(
                    'p',
                    { class: 'quiet' },
                    'The model’s exact input appears here once there is a message.',
                ),
            ];
        const { prompt, tokens, n_tokens: n } = rendered;
        const copy = iconButton('copy', 'Copy prompt', () => copyText(prompt, copy));
        return [
            el(
                'p',
                { class: 'quiet spread' },
                `${plural(n, 'token')}, formatted by the model’s chat template`,
                copy,
            ),
            el(
                'pre',
                { tabindex: '0', role: 'region', 'aria-label': 'Prompt text' },
                marked(prompt),
            ),
            el(
                'details',
                {},
                el('summary', {}, 'Token ids'),
                el('p', { class: 'ids' }, tokens.join(' ')),
            ),
        ];
    }
}
