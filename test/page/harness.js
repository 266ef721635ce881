// Starts `fletch serve` and a browser, and opens the page as a test wants it. Whatever goes wrong
// in the page (an exception, a refused resource, a request to elsewhere) fails the test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const FLAGS = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
];
const [, , BINARY, SHOTS] = process.argv;
const WAIT = 20_000; // ms; a machine may be busy with other tests

mkdirSync(SHOTS, { recursive: true });
const children = [];

// A server on a free port; resolves when it answers.
export async function serve(...args) {
    const child = spawn(BINARY, ['serve', '--port', '0', ...args], {
        stdio: ['ignore', 'ignore', 'pipe'],
    });
    children.push(child);
    const ended = new Promise((resolve) => {
        child.once('exit', resolve);
    });
    const url = await new Promise((resolve, reject) => {
        let said = '';
        child.stderr.on('data', (data) => {
            said += data;
            const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
            if (found) resolve(found[0]);
        });
        ended.then((code) => reject(new Error(`fletch serve ended with ${code}: ${said}`)));
    });
    for (
        let ready = false;
        !ready;
        await new Promise((resolve) => {
            setTimeout(resolve, 50);
        })
    ) {
        ready = (await fetch(`${url}/readyz`)).ok;
    }
    return url;
}

export const stopServers = () => children.forEach((child) => child.kill('SIGKILL'));

export const openBrowser = () =>
    chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });

// One visitor: a fresh profile with one tab. options: as of Playwright's newContext. New chats
// begin with short answers, which are enough for most tests.
export async function visit(browser, url, options = {}) {
    const context = await browser.newContext({
        viewport: { width: 1280, height: 800 },
        permissions: ['clipboard-read', 'clipboard-write'],
        ...options,
    });
    context.setDefaultTimeout(WAIT);
    await context.addInitScript(
        (settings) => {
            localStorage['fletch-settings'] ??= settings;
        },
        JSON.stringify({ max_tokens: 48 }),
    );
    const page = await context.newPage();
    const wrong = [];
    page.on('pageerror', (error) => wrong.push(error.stack));
    page.on('console', (message) => {
        // A refused request is the test's own doing; the page says what it has to say about it.
        if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
            wrong.push(message.text());
    });
    page.on('request', (request) => {
        if (!request.url().startsWith(url) && !request.url().startsWith('blob:'))
            wrong.push(`asked for ${request.url()}`);
    });
    await page.goto(url);
    return {
        page,
        context,
        close: async () => {
            await context.close();
            assert.deepEqual(wrong, []);
        },
    };
}

export const shot = (page, name) => page.screenshot({ path: join(SHOTS, `${name}.png`) });

export const answers = (page) => page.locator('.message.assistant');

export async function finished(page) {
    await page.waitForFunction(() => {
        const all = document.querySelectorAll('.message.assistant');
        return all.length && [...all].every((m) => m.getAttribute('aria-busy') === 'false');
    });
}

// Asks and waits for the whole answer; resolves to its text.
export async function ask(page, text) {
    await page.getByLabel('Your message').fill(text);
    await page.keyboard.press('Enter');
    await page.locator('.message.user', { hasText: text }).last().waitFor();
    await finished(page);
    return answers(page).last().locator('.text').innerText();
}

// The next answers of the page come from here instead of the server.
export async function canned(page, ...chunks) {
    const body = `${chunks.map((c) => `data: ${JSON.stringify(c)}\n\n`).join('')}data: [DONE]\n\n`;
    await page.route('**/v1/chat/completions', (route) =>
        route.fulfill({ contentType: 'text/event-stream', body }),
    );
}

export const delta = (change, finish = null) => ({
    choices: [{ index: 0, delta: change, finish_reason: finish }],
});

export async function assertNoSideScroll(page, where) {
    const [wide, width] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        innerWidth,
    ]);
    const log = await page.evaluate(() => {
        const l = document.getElementById('log');
        return l.scrollWidth - l.clientWidth;
    });
    assert.ok(
        wide <= width && log <= 0,
        `${where}: ${wide} px in a window of ${width}, messages ${log} px too wide`,
    );
}

// What axe-core finds serious or critical.
export async function assertAccessible(page, where) {
    await page.evaluate(axe.source);
    const found = await page.evaluate(async () =>
        (await axe.run(document)).violations
            .filter((v) => ['serious', 'critical'].includes(v.impact))
            .map(
                (v) =>
                    `${v.id}: ${v.help}: ${v.nodes
                        .map((n) => `${n.target} ${n.any[0]?.message ?? ''}`)
                        .slice(0, 3)
                        .join('; ')}`,
            ),
    );
    assert.deepEqual(found, [], where);
}
