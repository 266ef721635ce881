// Named settings: three of our own for sampling, and those that were saved here, which hold
// everything. No DOM here.
import { local } from './local.js';

const KEY = 'fletch-presets';
const SAMPLING = ['temperature', 'top_p', 'top_k', 'min_p'];

export const OWN_PRESETS = {
    'Model default': {},
    Precise: { temperature: 0 },
    Balanced: { temperature: 0.7, top_p: 0.9 },
    Creative: { temperature: 1, min_p: 0.05 },
};

export const savedPresets = () => local.getJson(KEY, {});

export function savePreset(name, settings) {
    local.setJson(KEY, { ...savedPresets(), [name]: settings });
}

export function removePreset(name) {
    const { [name]: _, ...others } = savedPresets();
    local.setJson(KEY, others);
}

// The settings with a preset applied; one of our own changes sampling alone.
export function withPreset(settings, name) {
    const saved = savedPresets();
    if (Object.hasOwn(saved, name)) return { ...saved[name] };
    const kept = Object.fromEntries(
        Object.entries(settings).filter(([key]) => !SAMPLING.includes(key)),
    );
    return { ...kept, ...OWN_PRESETS[name] };
}
