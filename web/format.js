// How figures are written, the same way everywhere.

export function duration(ms) {
    if (ms < 950) return `${Math.round(ms)} ms`;
    if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
    const minutes = Math.floor(ms / 60_000);
    if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
    return `${minutes} min ${Math.floor(ms / 1000) % 60} s`;
}

export function bytes(n) {
    const units = ['B', 'KB', 'MB', 'GB', 'TB'];
    let unit = 0;
    for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
    return `${n >= 10 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

export const count = (n) => Math.round(n).toLocaleString('en');
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
export const speed = (perSecond) =>
    `${perSecond >= 100 || perSecond === 0 ? count(perSecond) : perSecond.toFixed(1)} tokens/s`;

export function percent(share) {
    const p = share * 100;
    if (p > 0 && p < 0.1) return '< 0.1 %';
    return `${p.toFixed(p > 0 && p < 9.95 ? 1 : 0)} %`;
}

export const shorten = (text, n) => (text.length > n ? `${text.slice(0, n - 1).trimEnd()}…` : text);
