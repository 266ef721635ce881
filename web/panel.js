// The side panel: one of several views at a time, each opened by its button at the top. A view has
// `label`, `icon`, `element`, and may have shown() and hidden().
import { announce, byId, el, iconButton, labelledButton } from './dom.js';

export class Panel {
    constructor(views) {
        this.views = views;
        this.element = byId('panel');
        this.open = null;
        this.buttons = new Map(
            views.map((view) => [
                view,
                labelledButton(view.icon, view.label, view.label, () => this.toggle(view), {
                    'aria-expanded': 'false',
                    'aria-controls': 'panel',
                }),
            ]),
        );
        this.element.addEventListener('keydown', (event) => {
            if (event.key !== 'Escape' || !this.open) return;
            event.preventDefault(); // or else it would stop an answer, too
            this.toggle(this.open);
        });
    }

    show(view) {
        if (this.open !== view) this.toggle(view);
    }

    toggle(view) {
        const before = this.open;
        before?.hidden?.();
        this.open = before === view ? null : view;
        for (const [v, button] of this.buttons)
            button.setAttribute('aria-expanded', String(v === this.open));
        this.element.hidden = !this.open;
        if (!this.open) {
            this.element.replaceChildren();
            this.buttons.get(before).focus();
            return;
        }
        const close = iconButton('close', 'Close', () => this.toggle(view));
        this.element.replaceChildren(
            el('div', { class: 'panel-head' }, el('h2', {}, view.label), close),
            el(
                'div',
                { class: 'panel-body', tabindex: '0', role: 'region', 'aria-label': view.label },
                view.element,
            ),
        );
        this.element.setAttribute('aria-label', view.label);
        view.shown?.();
        close.focus();
        announce(`${view.label} opened`);
    }
}
