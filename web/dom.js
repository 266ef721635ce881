// Makes elements: the one place of the page that does. Children that are strings become text nodes,
// so what a model or a file says can never become markup.

const SVG = 'http://www.w3.org/2000/svg',
    MATHML = 'http://www.w3.org/1998/Math/MathML';

// props: `on*` are handlers, everything else an attribute (true: present, false or null: absent).
function fill(node, props, children) {
    for (const [name, value] of Object.entries(props ?? {})) {
        if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
        else if (value === true) node.setAttribute(name, '');
        else if (value !== false && value != null) node.setAttribute(name, value);
    }
    node.append(...children.flat().filter((child) => child != null && child !== false));
    return node;
}

export const el = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) =>
    fill(document.createElementNS(SVG, tag), props, children);
export const mathml = (tag, props, ...children) =>
    fill(document.createElementNS(MATHML, tag), props, children);
export const byId = (id) => document.getElementById(id);

// 20 by 20, drawn with one stroke.
const ICONS = {
    menu: 'M3 5h14M3 10h14M3 15h14',
    plus: 'M10 4v12M4 10h12',
    search: 'M9 3.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M13 13l4 4',
    edit: 'M4 16l.8-3.4L13.2 4.2a1.6 1.6 0 0 1 2.3 0l.3.3a1.6 1.6 0 0 1 0 2.3L7.4 15.2zM11.5 6L14 8.5',
    trash: 'M4 5.5h12M8 5.5V3.5h4v2M5.5 5.5l.7 11h7.6l.7-11M8.5 8.5v5M11.5 8.5v5',
    copy: 'M7 7h9v9.5H7zM13 7V3.5H4V13h3',
    check: 'M4 10.5l4 4l8-9',
    again: 'M16 10a6 6 0 1 1-1.8-4.3L16 7.5M16 3.5v4h-4',
    left: 'M12 5l-5 5l5 5',
    right: 'M8 5l5 5l-5 5',
    send: 'M10 16V4.5M5 9.5l5-5l5 5',
    stop: 'M6 6h8v8H6z',
    close: 'M5 5l10 10M15 5L5 15',
    sliders: 'M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4',
    text: 'M4 4.5h12M4 8.2h8M4 11.8h12M4 15.5h6',
    pulse: 'M2.5 10.5h3.5l2-6l4 11l2-5h3.5',
    theme: 'M10 3a7 7 0 1 0 7 7a5.5 5.5 0 0 1-7-7',
    tokens: 'M3 5h5v4H3zM10 5h7v4h-7zM3 11h7v4H3zM12 11h5v4h-5z',
    terminal: 'M3 4h14v12H3zM6 8l2.5 2.2L6 12.5M10.5 13h4',
    forward: 'M4 5l6 5l-6 5zM11 5l6 5l-6 5z',
    down: 'M10 4v11M5 10.5l5 5l5-5',
    upload: 'M10 13V3.5M6 7.2l4-3.7l4 3.7M3.5 13v3.5h13V13',
    download: 'M10 3.5V13M6 9.3l4 3.7l4-3.7M3.5 13v3.5h13V13',
    pin: 'M7 3.5h6M8 3.5v5l-2.5 3h9L12 8.5v-5M10 11.5v5',
    clip: 'M15.5 9.3l-5.6 5.6a3.5 3.5 0 0 1-5-5l6.2-6.2a2.3 2.3 0 0 1 3.3 3.3L8.3 13a1.2 1.2 0 0 1-1.7-1.7l5.2-5.2',
    file: 'M5 2.5h6.5L15.5 6.5v11H5zM11.5 2.5v4h4M7.5 10.5h5.5M7.5 13.5h5.5',
    more: 'M4 10a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0m5.4 0a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0m5.4 0a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0',
    keyboard: 'M2.5 5.5h15v9h-15zM5.5 8.3h.01M8.5 8.3h.01M11.5 8.3h.01M14.5 8.3h.01M6.5 11.7h7',
    tool: 'M14 3.6a4 4 0 0 0-4.8 5.5L3.5 14.8l1.7 1.7l5.7-5.7a4 4 0 0 0 5.4-4.8l-2.4 2.4l-2-.4l-.4-2z',
};

export const icon = (name) =>
    svg(
        'svg',
        { class: 'icon', viewBox: '0 0 20 20', 'aria-hidden': 'true' },
        svg('path', { d: ICONS[name] }),
    );

// A button that shows only an icon; its label is for tooltips and screen readers.
export const iconButton = (name, label, onclick, props, ...children) =>
    el(
        'button',
        {
            type: 'button',
            class: 'icon-button',
            title: label,
            'aria-label': label,
            onclick,
            ...props,
        },
        icon(name),
        children,
    );

// The same with a short label beside the icon, where the window is wide enough.
export const labelledButton = (name, short, label, onclick, props) =>
    iconButton(name, label, onclick, props, el('span', { class: 'label' }, short));

// Offers text as a file.
export function download(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    el('a', { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Puts text on the clipboard and shows so on the button for a moment.
export async function copyText(text, button) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        // plain http on another machine's address has no clipboard interface
        const area = el('textarea', { class: 'sr' });
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand('copy');
        area.remove();
    }
    announce('Copied');
    const shown = button?.querySelector('svg');
    if (!shown || button.dataset.copied) return;
    button.dataset.copied = 'true';
    shown.replaceWith(icon('check'));
    setTimeout(() => {
        button.querySelector('svg').replaceWith(shown);
        delete button.dataset.copied;
    }, 1200);
}

// Tells screen readers; the same words twice are said twice.
export function announce(text) {
    const region = byId('announce');
    region.textContent = '';
    setTimeout(() => {
        region.textContent = text;
    }, 50);
}
