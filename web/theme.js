// Light, dark, or as the system says. The colours themselves are in style.css, each with its two
// values; only color-scheme changes.
import { announce, iconButton } from './dom.js';
import { local } from './local.js';

const KEY = 'fletch-theme';
const NEXT = { system: 'light', light: 'dark', dark: 'system' };

export function themeButton() {
    let theme = local.get(KEY) in NEXT ? local.get(KEY) : 'system';
    const button = iconButton('theme', '', () => {
        theme = NEXT[theme];
        local.set(KEY, theme);
        show();
        announce(button.title);
    });
    const show = () => {
        document.documentElement.dataset.theme = theme;
        button.title = `Theme: ${theme === 'system' ? 'same as the system' : theme}`;
        button.setAttribute('aria-label', button.title);
    };
    show();
    return button;
}
