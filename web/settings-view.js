// The form for system prompt, sampling and tools of the current conversation. Every change counts
// at once, for the next answer.
import { el } from './dom.js';
import { OWN_PRESETS, removePreset, savedPresets, savePreset, withPreset } from './presets.js';
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
            dir: 'auto',
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

// A schema counts only while that format is chosen, and then it must not be empty.
function checkSchema(input, format) {
    input.setCustomValidity('');
    if (format !== 'schema') return;
    if (input.value.trim()) checkJson(input, isObject, 'object');
    else input.setCustomValidity('The schema is missing.');
}

const BY_THE_SERVER = { max_tokens: 'no limit', seed: 'random' };

export class SettingsView {
    // change(settings) is called after every change, keep(settings) to make them the defaults.
    constructor(change, keep) {
        this.label = 'Settings';
        this.icon = 'sliders';
        this.change = change;
        this.preset = el('select', {
            id: 'set-preset',
            onchange: () => this.takePreset(this.preset.value),
            oninput: (event) => event.stopPropagation(),
        });
        this.showPresets('');
        const thinking = el(
            'select',
            { id: 'set-thinking', name: 'thinking' },
            el('option', { value: '' }, 'Model default'),
            el('option', { value: 'on' }, 'Think first'),
            el('option', { value: 'off' }, 'Answer directly'),
        );
        const format = el(
            'select',
            { id: 'set-format', name: 'format' },
            el('option', { value: '' }, 'Text'),
            el('option', { value: 'json' }, 'JSON'),
            el('option', { value: 'schema' }, 'JSON that matches a schema'),
        );
        this.schema = textField(
            'schema',
            'JSON schema',
            'The whole answer will match it.',
            '4',
            '{"type": "object", "properties": { }}',
        );
        this.note = el('p', { class: 'quiet', role: 'status' });
        this.remove = el(
            'button',
            { type: 'button', hidden: true, onclick: () => this.removePreset() },
            'Delete preset',
        );
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
                'Instructions for the model, sent before the conversation.',
                '4',
                'None',
            ),
            labelled(
                'set-preset',
                'Preset',
                'Built-in presets change only sampling; presets you save contain all settings.',
                this.preset,
            ),
            el('fieldset', {}, el('legend', {}, 'Sampling'), SETTINGS.map(numberField)),
            labelled(
                'set-thinking',
                'Thinking',
                'For models that can reason before they answer.',
                thinking,
            ),
            textField(
                'stop',
                'Stop strings',
                'One per line; the answer ends before the first one that appears.',
                '2',
            ),
            labelled(
                'set-format',
                'Answer format',
                'With JSON output, the model does not reason first and does not call tools.',
                format,
            ),
            this.schema,
            textField(
                'tools',
                'Tools',
                'A JSON list in the format of the OpenAI API. The page asks you for the result of each call.',
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
                el(
                    'button',
                    { type: 'button', onclick: () => this.askForPreset() },
                    'Save as preset',
                ),
                this.remove,
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

    // The values that count where a field is empty: sampling of the model, by the server.
    showDefaults(sampling) {
        for (const { key } of SETTINGS) {
            const value = BY_THE_SERVER[key] ?? sampling?.[key];
            const input = this.element.elements[key];
            input.placeholder = value == null ? 'default' : `${+(+value).toFixed(4) || value}`;
        }
    }

    focusSystem() {
        this.element.elements.system.focus();
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
        this.say('New chats will start with these settings.');
    }

    // Everything but the system prompt, which is somebody's work.
    reset() {
        const { system } = this.read();
        this.show({ ...DEFAULTS, system });
        this.read();
        this.showPresets('');
        this.say(
            system.trim()
                ? 'All settings were reset to their defaults. The system prompt was kept.'
                : 'All settings were reset to their defaults.',
        );
    }

    // ---- presets ----

    showPresets(chosen) {
        const options = (names) => names.map((name) => el('option', { value: name }, name));
        const saved = Object.keys(savedPresets());
        this.preset.replaceChildren(
            el('option', { value: '' }, 'Choose …'),
            ...options(Object.keys(OWN_PRESETS)),
            ...(saved.length ? [el('optgroup', { label: 'Saved here' }, options(saved))] : []),
        );
        this.preset.value = chosen;
        if (this.remove) this.remove.hidden = !saved.includes(chosen);
    }

    takePreset(name) {
        if (!name) return;
        this.show({ ...DEFAULTS, ...withPreset(this.read(), name) });
        this.read();
        this.showPresets(name);
    }

    // An input in place of the note.
    askForPreset() {
        const input = el('input', {
            type: 'text',
            'aria-label': 'Name of the preset',
            maxlength: '60',
        });
        input.addEventListener('input', (event) => event.stopPropagation());
        input.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') this.say('');
            else if (event.key === 'Enter' && input.value.trim()) {
                savePreset(input.value.trim(), this.read());
                this.showPresets(input.value.trim());
                this.say(`Saved as “${input.value.trim()}”.`);
            } else return;
            event.preventDefault();
            event.stopPropagation();
        });
        this.say('Preset name (press Enter to save): ');
        this.note.append(input);
        input.focus();
    }

    removePreset() {
        const name = this.preset.value;
        removePreset(name);
        this.showPresets('');
        this.say(`The preset “${name}” was deleted.`);
    }
}
