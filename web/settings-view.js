// The form for system prompt, sampling and tools of the current conversation. Every change counts
// at once, for the next answer.
import { el } from './dom.js';
import { DEFAULTS, SETTINGS } from './request.js';

const labelled = (id, label, help, input) =>
    el(
        'div',
        { class: 'field' },
        el('label', { for: id }, label),
        input,
        help && el('p', { class: 'quiet', id: `${id}-help` }, help),
    );

function numberField({ key, label, help, min, max, step }) {
    const id = `set-${key}`;
    return labelled(
        id,
        label,
        help,
        el('input', {
            id,
            name: key,
            type: 'number',
            min,
            max,
            step,
            placeholder: 'default',
            'aria-describedby': help ? `${id}-help` : null,
        }),
    );
}

function textField(key, label, help, rows, placeholder) {
    const id = `set-${key}`;
    return labelled(
        id,
        label,
        help,
        el('textarea', {
            id,
            name: key,
            rows,
            placeholder,
            spellcheck: key === 'system' ? null : 'false',
            'aria-describedby': help ? `${id}-help` : null,
        }),
    );
}

export class SettingsView {
    // change(settings) is called after every change, keep(settings) to make them the defaults.
    constructor(change, keep) {
        this.label = 'Settings';
        this.icon = 'sliders';
        this.change = change;
        const thinking = el(
            'select',
            { id: 'set-thinking', name: 'thinking' },
            el('option', { value: '' }, 'As the model does'),
            el('option', { value: 'on' }, 'Think first'),
            el('option', { value: 'off' }, 'Answer at once'),
        );
        this.note = el('p', { class: 'quiet', role: 'status' });
        this.element = el(
            'form',
            {
                class: 'settings',
                onsubmit: (event) => event.preventDefault(),
                oninput: () => this.read(),
            },
            textField(
                'system',
                'System prompt',
                'What the model is told before the conversation.',
                '4',
                'None',
            ),
            el('fieldset', {}, el('legend', {}, 'Sampling'), SETTINGS.map(numberField)),
            labelled(
                'set-thinking',
                'Thinking',
                'For models that can think before they answer.',
                thinking,
            ),
            textField('stop', 'Stop texts', 'One a line; the answer ends where one appears.', '2'),
            textField(
                'tools',
                'Tools',
                'A JSON list as in the OpenAI API. You are asked for the result of each call.',
                '4',
                '[ ]',
            ),
            el(
                'label',
                { class: 'check' },
                el('input', { type: 'checkbox', name: 'probabilities' }),
                ' Record token probabilities',
            ),
            el(
                'div',
                { class: 'actions' },
                el(
                    'button',
                    { type: 'button', onclick: () => this.keep(keep) },
                    'Use for new chats',
                ),
                el('button', { type: 'button', onclick: () => this.reset() }, 'Reset'),
            ),
            this.note,
        );
    }

    show(settings) {
        for (const input of this.element.elements) {
            if (!input.name) continue;
            if (input.type === 'checkbox') input.checked = settings[input.name] !== false;
            else input.value = settings[input.name] ?? '';
            input.setCustomValidity('');
        }
        this.say('');
    }

    // Values that are out of bounds are marked and not taken over.
    read() {
        const settings = { ...DEFAULTS };
        for (const input of this.element.elements) {
            if (!input.name) continue;
            if (input.type === 'checkbox') settings[input.name] = input.checked;
            else if (input.type !== 'number') settings[input.name] = input.value;
            else if (input.value !== '' && input.validity.valid)
                settings[input.name] = Number(input.value);
            if (input.name === 'tools') this.checkTools(input);
            if (input.type === 'number' || input.name === 'tools')
                input.setAttribute('aria-invalid', String(!input.validity.valid));
        }
        const wrong = [...this.element.elements].find(
            (input) => input.name && !input.validity.valid,
        );
        this.say(wrong?.validationMessage ?? '', wrong?.closest('.field'));
        this.change(settings);
        return settings;
    }

    checkTools(input) {
        let message = '';
        try {
            if (input.value.trim() && !Array.isArray(JSON.parse(input.value)))
                message = 'This is not a JSON list.';
        } catch (error) {
            message = `This is not JSON: ${error.message}`;
        }
        input.setCustomValidity(message);
    }

    // Under the field it is about, or at the end.
    say(text, field) {
        this.note.textContent = text;
        this.note.classList.toggle('error', Boolean(field));
        (field ?? this.element).append(this.note);
    }

    keep(keep) {
        keep(this.read());
        this.say('New chats will begin with these settings.');
    }

    reset() {
        this.show(DEFAULTS);
        this.read();
    }
}
