// Orders conversations for the sidebar: pinned ones, then by the day of their last change. No DOM
// here.
const DAY = 86_400_000;

const startOfDay = (time) => new Date(time).setHours(0, 0, 0, 0);

export function groupOf({ pinned, changed }, now) {
    if (pinned) return 'Pinned';
    const days = Math.round((startOfDay(now) - startOfDay(changed)) / DAY);
    if (days <= 0) return 'Today';
    if (days === 1) return 'Yesterday';
    if (days <= 7) return 'Previous 7 days';
    if (days <= 30) return 'Previous 30 days';
    return new Date(changed).toLocaleDateString('en', { month: 'long', year: 'numeric' });
}

// The time of today, the day of this year, or the date.
export function shortDate(time, now) {
    if (startOfDay(time) === startOfDay(now))
        return new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    const sameYear = new Date(time).getFullYear() === new Date(now).getFullYear();
    const form = { month: 'short', day: 'numeric', ...(!sameYear && { year: 'numeric' }) };
    return new Date(time).toLocaleDateString('en', form);
}

// [[name, conversations]], newest first
export function grouped(conversations, now) {
    const groups = new Map();
    const sorted = [...conversations].sort(
        (a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false) || b.changed - a.changed,
    );
    for (const conversation of sorted) {
        const name = groupOf(conversation, now);
        groups.set(name, [...(groups.get(name) ?? []), conversation]);
    }
    return [...groups];
}
