// A message being edited. Enter and Shift-Enter do what they do in the composer.
import { el } from './dom.js';
import { isSend } from './keys.js';

export class EditForm {
    // done(text): null when nothing is to change.
    constructor(content, action, done) {
        this.area = el('textarea', {
            'aria-label': 'Edit message',
            dir: 'auto',
            rows: String(Math.min(16, content.split('\n').length + 1)),
        });
        this.area.value = content;
        const submit = () => {
            const text = this.area.value;
            done(text.trim() && text !== content ? text : null);
        };
        this.element = el(
            'form',
            {
                class: 'edit-form',
                onsubmit: (event) => {
                    event.preventDefault();
                    submit();
                },
            },
            this.area,
            el(
                'div',
                { class: 'actions' },
                el('button', { type: 'submit', class: 'primary' }, action),
                el('button', { type: 'button', onclick: () => done(null) }, 'Cancel'),
            ),
        );
        this.area.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') done(null);
            else if (isSend(event)) submit();
            else return;
            event.preventDefault();
        });
    }

    focus() {
        this.area.focus();
    }
}
