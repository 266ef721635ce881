// Registers the service worker, which keeps the page's files for when the server is not running.
// Browsers have it on localhost and over https only; everywhere else the page works without.
export function keepOffline() {
    navigator.serviceWorker?.register('sw.js').catch(() => {});
}
