// Light, dark, or as the system says. The colours themselves are in style.css, each with its two
// values; only color-scheme changes.
import { announce, iconButton } from './dom.js';

const KEY = 'fletch-theme';
const NEXT = { system: 'light', light: 'dark', dark: 'system' };

export function themeButton() {
    let theme = localStorage.getItem(KEY) in NEXT ? localStorage.getItem(KEY) : 'system';
    const button = iconButton('theme', '', () => {
        theme = NEXT[theme];
        localStorage.setItem(KEY, theme);
        show();
        announce(button.title);
    });
    const show = () => {
        document.documentElement.dataset.theme = theme;
        button.title = `Colours: ${theme === 'system' ? 'as the system' : theme}`;
        button.setAttribute('aria-label', button.title);
    };
    show();
    return button;
}
