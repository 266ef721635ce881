// A button that opens a short list of labelled actions. The list is a popover, so that no scrolling
// box cuts it off and a click elsewhere or Escape closes it.
import { el, icon, iconButton } from './dom.js';

function place(list, button) {
    const at = button.getBoundingClientRect();
    const left = Math.min(at.right - list.offsetWidth, innerWidth - list.offsetWidth - 8);
    const below = at.bottom + list.offsetHeight + 8 <= innerHeight;
    list.style.left = `${Math.max(8, left)}px`;
    list.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - list.offsetHeight - 4)}px`;
}

function onKey(event, list, button) {
    const items = [...list.querySelectorAll('button')];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
        const next = items.indexOf(document.activeElement) + step;
        items[(next + items.length) % items.length].focus();
    } else if (event.key === 'Escape' || event.key === 'Tab') {
        list.hidePopover();
        button.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
}

// items(): [[icon, label, action]] when it is opened
export function menuButton(iconName, label, items, props) {
    const list = el('div', { class: 'menu', role: 'menu', 'aria-label': label, popover: 'auto' });
    const entry = ([name, text, action]) =>
        el(
            'button',
            {
                type: 'button',
                role: 'menuitem',
                onclick: () => {
                    list.hidePopover();
                    button.focus();
                    action();
                },
            },
            icon(name),
            text,
        );
    const open = () => {
        list.replaceChildren(...items().filter(Boolean).map(entry));
        document.body.append(list);
        list.showPopover();
        place(list, button);
        list.querySelector('button').focus();
    };
    const button = iconButton(iconName, label, open, {
        'aria-haspopup': 'menu',
        'aria-expanded': 'false',
        ...props,
    });
    list.addEventListener('keydown', (event) => onKey(event, list, button));
    list.addEventListener('toggle', ({ newState }) => {
        button.setAttribute('aria-expanded', String(newState === 'open'));
        if (newState === 'closed') list.remove();
    });
    return button;
}
