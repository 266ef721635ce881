// The questions that interrupt: the API key, and whether to delete. A dialog resolves to what was
// answered, or null.
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

const cancel = () => el('button', { type: 'submit', value: '', formnovalidate: true }, 'Cancel');

export async function askKey(wasWrong) {
    const input = el('input', {
        type: 'password',
        id: 'key',
        required: true,
        autofocus: true,
        autocomplete: 'off',
    });
    const answer = await ask(
        'This server needs a key',
        [
            wasWrong &&
                el('p', { class: 'error', role: 'alert' }, 'The server does not know that key.'),
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
            [el('p', {}, `“${title}” and all its branches will be gone.`)],
            [
                el(
                    'button',
                    { type: 'submit', class: 'danger', value: 'ok', autofocus: true },
                    'Delete',
                ),
                cancel(),
            ],
        )) === 'ok'
    );
}
