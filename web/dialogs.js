// The questions that interrupt: the API key, whether to delete, whether to answer the same again; and
// the list of shortcuts. A dialog resolves to what was answered, or null.
import { el } from './dom.js';

function ask(title, content, actions) {
    return new Promise((resolve) => {
        const heading = el('h2', { id: 'dialog-title' }, title);
        const form = el(
            'form',
            { method: 'dialog' },
            heading,
            content,
            el('div', { class: 'actions' }, actions),
        );
        const dialog = el('dialog', { 'aria-labelledby': 'dialog-title' }, form);
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(dialog.returnValue || null);
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}

const cancel = (props) =>
    el('button', { type: 'submit', value: '', formnovalidate: true, ...props }, 'Cancel');

export async function askKey(wasWrong) {
    const input = el('input', {
        type: 'password',
        id: 'key',
        required: true,
        autofocus: true,
        autocomplete: 'off',
    });
    const answer = await ask(
        'This server requires a key',
        [
            wasWrong &&
                el('p', { class: 'error', role: 'alert' }, 'The server does not accept that key.'),
            el('label', { for: 'key' }, 'API key'),
            input,
            el('p', { class: 'quiet' }, 'It is kept until you close this tab.'),
        ],
        [el('button', { type: 'submit', class: 'primary', value: 'ok' }, 'Continue'), cancel()],
    );
    return answer && input.value.trim();
}

export async function askDelete(title) {
    return (
        (await ask(
            'Delete this conversation?',
            [el('p', {}, `“${title}” and all its branches will be deleted. This can’t be undone.`)],
            [
                el('button', { type: 'submit', class: 'danger', value: 'ok' }, 'Delete'),
                cancel({ autofocus: true }), // Enter on a dialog that just opened deletes nothing
            ],
        )) === 'ok'
    );
}

const SAME = {
    temperature: [
        'At temperature 0 the model always picks the most likely token, so the same question gets ' +
            'the same answer.',
        'Answer at temperature 0.8',
    ],
    seed: [
        'The settings fix the seed, so the same question gets the same answer.',
        'Answer with a new seed',
    ],
};

// Resolves to "other", "same", or null.
export function askSame(why) {
    const [text, other] = SAME[why];
    return ask(
        'The answer will be the same',
        [el('p', {}, text)],
        [
            el('button', { type: 'submit', class: 'primary', value: 'other' }, other),
            el('button', { type: 'submit', value: 'same' }, 'Answer again anyway'),
            cancel(),
        ],
    );
}

const SHORTCUTS = [
    ['Enter', 'Send; while an answer is being written, send when it is complete'],
    ['Shift+Enter', 'New line'],
    ['Escape', 'Stop the answer; close a panel or dialog'],
    ['Ctrl+K', 'Search conversations'],
    ['Ctrl+Shift+O', 'New chat'],
    ['Ctrl+Shift+S', 'Show or hide the sidebar'],
    ['Ctrl+,', 'Settings'],
    ['/', 'Go to the message box'],
    ['?', 'Show this list'],
    ['← →', 'In the token view: previous and next token'],
];

const keys = (text) =>
    text.split(/([+ ])/).map((part) => (/^[+ ]$/.test(part) ? part : el('kbd', {}, part)));

export function showShortcuts() {
    return ask(
        'Keyboard shortcuts',
        [
            el(
                'dl',
                { class: 'shortcuts' },
                SHORTCUTS.flatMap(([combination, does]) => [
                    el('dt', {}, keys(combination)),
                    el('dd', {}, does),
                ]),
            ),
            el('p', { class: 'quiet' }, 'On a Mac, use ⌘ instead of Ctrl.'),
        ],
        [el('button', { type: 'submit', value: 'ok', autofocus: true }, 'Close')],
    );
}
