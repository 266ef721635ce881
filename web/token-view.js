// An answer token by token: coloured by how likely each was; hovering or focusing one shows what
// else could have been there, and lets the answer go on from that instead.
import { tokensText } from './answer.js';
import { el } from './dom.js';
import { percent } from './format.js';

// Lower bounds of the five colours, likeliest first.
const LEVELS = [0.9, 0.5, 0.2, 0.05, 0];
const probability = (token) => Math.exp(token.logprob);
const level = (p) => LEVELS.findIndex((bound) => p >= bound);

// Control tokens, as they are written; they can't be continued from as text.
const isControl = (text) => /^<.+>$/.test(text);

// Blanks and line ends made visible where a token is named.
const named = (text) =>
    text.replaceAll('\n', '⏎').replaceAll('\t', '⇥').replace(/^ | $/g, '␣') || '(nothing)';

const legend = () =>
    el(
        'p',
        { class: 'legend' },
        'Probability: ',
        LEVELS.map((bound, i) =>
            el(
                'span',
                { class: `p${i}` },
                i === 4 ? 'below 5 %' : `${i === 0 ? 'over' : 'from'} ${bound * 100} %`,
            ),
        ),
    );

const NONE =
    'No probabilities were recorded for this answer. ' +
    '“Record token probabilities” in the settings turns them on.';

export class TokenView {
    // go(index, alternative) continues the answer from one of a token's alternatives.
    constructor(tokens, go) {
        this.tokens = tokens;
        this.go = go;
        this.popover = el('div', {
            class: 'alternatives',
            role: 'dialog',
            'aria-label': 'Alternatives',
            hidden: true,
        });
        this.spans = tokens.map((token, i) => this.token(token, i));
        this.element = el(
            'div',
            { class: 'token-view' },
            tokens.length
                ? [legend(), this.text(), this.popover]
                : el('p', { class: 'quiet' }, NONE),
        );
        this.element.addEventListener('pointerleave', () => this.hide());
        this.element.addEventListener('keydown', (event) => this.onKey(event));
        this.element.addEventListener('focusout', (event) => {
            if (!this.element.contains(event.relatedTarget)) this.hide();
        });
    }

    text() {
        // A line end within a token breaks the line after it.
        const lines = this.spans.flatMap((span, i) =>
            this.tokens[i].text.includes('\n') ? [span, el('br')] : [span],
        );
        return el(
            'div',
            {
                class: 'tokens',
                role: 'group',
                'aria-label': 'Tokens; arrow keys move, Enter lists alternatives',
            },
            lines,
        );
    }

    token(token, i) {
        const p = probability(token);
        const shown = token.text.replaceAll('\n', '⏎');
        return el(
            'button',
            {
                type: 'button',
                class: `token p${level(p)} ${token.part}`,
                tabindex: i === 0 ? '0' : '-1',
                'aria-label': `${named(token.text)}, ${percent(p)}`,
                onpointerenter: () => this.hover(i),
                onfocus: () => this.show(i),
                onclick: () => this.show(i, true),
            },
            shown || '·',
        );
    }

    // While somebody is choosing among alternatives, the pointer's way changes nothing.
    hover(i) {
        if (!this.popover.contains(document.activeElement)) this.show(i);
    }

    show(i, enter = false) {
        const token = this.tokens[i];
        const before = this.tokens.slice(0, i).filter((t) => t.part === 'content');
        const rows = token.top.map((other, k) => this.alternative(i, k, other, before));
        this.popover.replaceChildren(
            el('p', {}, el('strong', {}, named(token.text)), ` had ${percent(probability(token))}`),
            el('ol', {}, rows),
        );
        this.popover.hidden = false;
        this.at = i;
        this.place(this.spans[i]);
        if (enter) this.popover.querySelector('button:not(:disabled)')?.focus();
    }

    alternative(i, k, other, before) {
        const p = probability(other);
        const token = this.tokens[i];
        const same = other.text === token.text;
        // Thoughts and calls can't be continued; nor can text that would end within a character.
        const can =
            token.part === 'content' &&
            !same &&
            other.text !== '' &&
            !isControl(other.text) &&
            tokensText([...before, other]) !== null;
        const bar = el('span', { class: 'share' });
        bar.style.setProperty('--share', p);
        return el(
            'li',
            { class: same ? 'same' : null },
            el(
                'button',
                {
                    type: 'button',
                    disabled: !can,
                    onclick: () => this.go(i, k),
                    title: can
                        ? 'Continue from this alternative'
                        : same
                          ? 'This token was chosen'
                          : 'The answer cannot continue from here',
                },
                el('code', {}, named(other.text)),
                bar,
                el('span', { class: 'number' }, percent(p)),
                can && el('span', { class: 'sr' }, 'Continue from this alternative'),
            ),
        );
    }

    // Below the token, within the view's width.
    place(span) {
        const outer = this.element.getBoundingClientRect(),
            at = span.getBoundingClientRect();
        const left = Math.max(
            0,
            Math.min(at.left - outer.left, outer.width - this.popover.offsetWidth),
        );
        this.popover.style.left = `${left}px`;
        this.popover.style.top = `${at.bottom - outer.top}px`;
    }

    hide() {
        this.popover.hidden = true;
    }

    move(to) {
        const i = Math.max(0, Math.min(this.spans.length - 1, to));
        for (const [k, span] of this.spans.entries()) span.tabIndex = k === i ? 0 : -1;
        this.spans[i].focus();
    }

    onKey(event) {
        const inside = this.popover.contains(event.target);
        const i = inside ? this.at : this.spans.indexOf(event.target);
        const steps = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: this.spans.length - 1 };
        if (inside && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
            const buttons = [...this.popover.querySelectorAll('button:not(:disabled)')];
            const next = buttons.indexOf(event.target) + (event.key === 'ArrowDown' ? 1 : -1);
            buttons[(next + buttons.length) % buttons.length]?.focus();
        } else if (event.key === 'ArrowDown' && i >= 0) this.show(i, true);
        else if (event.key === 'Escape' && !this.popover.hidden) {
            this.spans[i]?.focus();
            this.hide();
        } else if (event.key in steps && i >= 0) this.move(steps[event.key]);
        else return;
        event.preventDefault();
        event.stopPropagation();
    }
}
