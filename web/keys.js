// What Enter means where text is written: the same in the composer and in the form that edits a
// message. A phone has no Shift-Enter: there Enter is a new line, and the button sends.
export const isTouch = () => matchMedia('(pointer: coarse)').matches;

export const isSend = (event) =>
    event.key === 'Enter' &&
    !event.shiftKey &&
    !event.isComposing &&
    (!isTouch() || event.ctrlKey || event.metaKey);
