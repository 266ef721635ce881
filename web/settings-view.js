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

// Marks a text that is neither empty nor JSON of a kind.
function checkJson(input, isRight, kind) {
    let message = '';
    try {
        if (input.value.trim() && !isRight(JSON.parse(input.value)))
            message = `This is not a JSON ${kind}.`;
    } catch (error) {
        message = `This is not JSON: ${error.message}`;
    }
    input.setCustomValidity(message);
}

const isObject = (value) => value instanceof Object && !Array.isArray(value);

// A schema counts only while it is asked for, and then there must be one.
function checkSchema(input, format) {
    input.setCustomValidity('');
    if (format !== 'schema') return;
    if (input.value.trim()) checkJson(input, isObject, 'object');
    else input.setCustomValidity('The schema is missing.');
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
        const format = el(
            'select',
            { id: 'set-format', name: 'format' },
            el('option', { value: '' }, 'Text'),
            el('option', { value: 'json' }, 'JSON'),
            el('option', { value: 'schema' }, 'JSON that follows a schema'),
        );
        this.schema = textField(
            'schema',
            'JSON schema',
            'What the answer is kept to, from its first character.',
            '4',
            '{"type": "object", "properties": { }}',
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
            labelled(
                'set-format',
                'Answer format',
                'With JSON the model neither thinks first nor calls tools.',
                format,
            ),
            this.schema,
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
        this.schema.hidden = settings.format !== 'schema';
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
        }
        this.schema.hidden = settings.format !== 'schema';
        for (const input of this.element.elements) {
            if (input.name === 'tools') checkJson(input, Array.isArray, 'list');
            if (input.name === 'schema') checkSchema(input, settings.format);
            if (input.type === 'number' || input.name === 'tools' || input.name === 'schema')
                input.setAttribute('aria-invalid', String(!input.validity.valid));
        }
        const wrong = [...this.element.elements].find(
            (input) => input.name && !input.validity.valid,
        );
        this.say(wrong?.validationMessage ?? '', wrong?.closest('.field'));
        this.change(settings);
        return settings;
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
