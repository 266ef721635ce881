// Drives a browser through every feature of the page of `fletch serve` with the built-in model.
//   node page_test.js BINARY SCREENSHOTS
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import {
    answers,
    ask,
    assertAccessible,
    assertNoSideScroll,
    becomes,
    canned,
    delta,
    finished,
    kept,
    openBrowser,
    paced,
    serve,
    shot,
    stopServers,
    visit,
} from './harness.js';

const TIMEOUT = { timeout: 240_000 }; // ms for one test
let url, browser, folder;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'page-'));
    [url, browser] = await Promise.all([serve(), openBrowser()]);
});

after(async () => {
    await browser?.close();
    stopServers();
    rmSync(folder, { recursive: true });
});

// A test with a visitor of its own.
const onPage = (name, use, options) =>
    test(name, TIMEOUT, async () => {
        const { page, close } = await visit(browser, url, options);
        await use(page);
        await close();
    });

const button = (page, name) => page.getByRole('button', { name, exact: true });
const settingsOf = async (page, values) => {
    await button(page, 'Settings').click();
    for (const [label, value] of Object.entries(values))
        await page.getByLabel(label, { exact: true }).fill(String(value));
    await button(page, 'Settings').click();
};
const items = (page) => page.locator('#conversations li');
const titles = (page) => items(page).locator('.name').allInnerTexts();
// Chooses from the menu of a conversation in the list.
const act = async (page, title, action) => {
    await items(page).filter({ hasText: title }).first().hover();
    await button(page, `Actions for ${title}`).click();
    await page.getByRole('menuitem', { name: action, exact: true }).click();
};
const openItem = (page, i) => items(page).nth(i).getByRole('button').first().click();
const lastText = (page) => answers(page).locator('.text').last().innerText();
const clipboard = (page) => page.evaluate(() => navigator.clipboard.readText());

onPage('an answer streams in, with its figures', async (page) => {
    await shot(page, 'welcome');
    await paced(page);
    await page.evaluate(() => {
        new MutationObserver(() => {
            const busy = document.querySelector('.message.assistant[aria-busy="true"] .text');
            window.early ||= busy?.textContent;
        }).observe(document.getElementById('messages'), { childList: true, subtree: true });
    });
    const said = await ask(page, 'Tell me a story.');
    assert.ok(said.length > 100, said);
    const early = await page.evaluate(() => window.early);
    assert.ok(early && early.length < said.length, `the text came in one piece: ${early}`);
    const stats = answers(page).locator('.stats');
    await becomes(() => stats.locator('summary').innerText(), /\d+ tokens · [\d.,]+ tokens\/s/);
    await stats.locator('summary').click();
    await becomes(() => stats.innerText(), /reuse ended: \w+/);
    // Screen readers get the whole answer once.
    await becomes(() => page.locator('#announce').textContent(), /^Answer: /);
    await becomes(() => page.title(), 'Tell me a story. · fletch');
});

onPage('stop ends the answer and frees its place at the server', async (page) => {
    await paced(page);
    await settingsOf(page, { 'Maximum answer length': 1000 });
    await page.evaluate(() =>
        new MutationObserver(() => {
            if (document.querySelector('.message.assistant .text')?.textContent)
                document.getElementById('send').click();
        }).observe(document.getElementById('messages'), { childList: true, subtree: true }),
    );
    await ask(page, 'Tell me a story.');
    await page.getByText('Stopped.').waitFor();
    await becomes(async () => (await (await fetch(`${url}/v1/status`)).json()).running, 0);
    await page.reload();
    await openItem(page, 0);
    await page.getByText('Stopped.').waitFor(); // what there was is kept
});

onPage('answers and questions branch', async (page) => {
    await settingsOf(page, { Temperature: 1 });
    const first = await ask(page, 'Tell me a story.');
    await button(page, 'Answer again').click();
    await finished(page);
    await page.getByLabel('Branch 2 of 2').getByText('2/2').waitFor();
    assert.notEqual(first, await lastText(page));
    await button(page, 'Previous branch').focus();
    await page.keyboard.press('Enter');
    await becomes(() => lastText(page), first);
    await settingsOf(page, { Temperature: 0 });
    await page.locator('.message.user').getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edit message').fill('What is a GGUF file?');
    await button(page, 'Send as new branch').click();
    await finished(page);
    await becomes(() => answers(page).innerText(), /GGUF/);
    await page.locator('.message.user').getByRole('button', { name: 'Previous branch' }).click();
    await becomes(() => lastText(page), first);
    await button(page, 'Next branch').last().click();
    await page.getByLabel('Branch 2 of 2').waitFor();
    await shot(page, 'branches');
    await answers(page).getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edit message').fill('My own words');
    await button(page, 'Keep as new branch').click();
    await page.getByLabel('Branch 3 of 3').getByText('3/3').waitFor();
    await becomes(() => answers(page).innerText(), /My own words/);
});

onPage('a conversation goes on, and its cache is used', async (page) => {
    await settingsOf(page, {
        'System prompt':
            'You are a very patient helper who always says what is true, in few words, please.',
    });
    await ask(page, 'What is a GGUF file?');
    await ask(page, 'How do I make a model smaller?');
    const stats = answers(page).last().locator('.stats');
    await becomes(() => stats.locator('summary').innerText(), /% of the prompt cached/);
    await becomes(() => page.locator('.message').count(), 4);
});

onPage('conversations survive a reload; search, rename and delete', async (page) => {
    const said = await ask(page, 'What is a GGUF file?');
    await button(page, 'New chat').first().click();
    await ask(page, '27+48=');
    await page.reload();
    await becomes(() => titles(page), ['27+48=', 'What is a GGUF file?']);
    await openItem(page, 1);
    await becomes(() => lastText(page), said);
    await page.keyboard.press('Control+k');
    await page.keyboard.type('27+');
    await becomes(() => titles(page), ['27+48=']);
    await page.getByLabel('Search conversations').fill('no such words');
    await page.getByText('No conversation contains these words.').waitFor();
    await page.getByLabel('Search conversations').fill('');
    await act(page, '27+48=', 'Rename');
    await page.getByLabel('Title', { exact: true }).fill('Sums');
    await page.keyboard.press('Enter');
    await page.locator('#title').getByRole('button').click();
    await page.getByLabel('Title', { exact: true }).fill('About files');
    await page.keyboard.press('Enter');
    await becomes(() => kept(page), ['About files', 'Sums']);
    await page.reload();
    await becomes(() => titles(page), ['Sums', 'About files']);
    await act(page, 'Sums', 'Delete');
    await button(page, 'Cancel').click();
    await becomes(() => page.locator('dialog').count(), 0);
    await becomes(() => titles(page), ['Sums', 'About files']);
    await act(page, 'Sums', 'Delete');
    await button(page, 'Delete').click();
    await becomes(() => titles(page), ['About files']);
    await becomes(() => kept(page), ['About files']);
    await page.reload();
    await becomes(() => titles(page), ['About files']);
});

onPage('export and import give the same conversations', async (page) => {
    await settingsOf(page, { 'System prompt': 'Be brief.', Temperature: 0.3 });
    await ask(page, 'What is a GGUF file?');
    await button(page, 'Answer again').click();
    await finished(page);
    const download = async (name) => {
        const [file] = await Promise.all([
            page.waitForEvent('download'),
            button(page, 'Export all').click(),
        ]);
        assert.equal(file.suggestedFilename(), 'fletch-conversations.json');
        await file.saveAs(join(folder, name));
        return readFileSync(join(folder, name), 'utf8');
    };
    const before = await download('a.json');
    await act(page, 'What is a GGUF file?', 'Delete');
    await button(page, 'Delete').click();
    await becomes(() => kept(page), []);
    await page.getByLabel('File to import').setInputFiles(join(folder, 'a.json'));
    await becomes(() => titles(page), ['What is a GGUF file?']);
    assert.deepEqual(JSON.parse(await download('b.json')), JSON.parse(before));
    await openItem(page, 0);
    await page.getByLabel('Branch 2 of 2').getByText('2/2').waitFor();
    writeFileSync(
        join(folder, 'bad.json'),
        JSON.stringify({
            format: 'fletch-conversations',
            version: 1,
            conversations: [{ messages: [{ role: 'root' }] }],
        }),
    );
    await page.getByLabel('File to import').setInputFiles(join(folder, 'bad.json'));
    await page
        .getByText(
            'bad.json was not imported. Message 1 of conversation 1 has an unknown role',
        )
        .waitFor();
    await becomes(() => titles(page), ['What is a GGUF file?']);
});

onPage('hostile text stays text', async (page) => {
    const hostile = [
        '<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>',
        '[a](javascript:window.hacked=1) ![b](data:text/html,x) <iframe srcdoc="x"></iframe>',
        '| <svg onload="window.hacked=1"> |\n|---|\n| <b>x</b> |',
        '```html\n<script>window.hacked=1</script>\n```',
    ].join('\n\n');
    await canned(
        page,
        delta({ reasoning_content: hostile }),
        delta({ content: hostile }),
        delta({
            tool_calls: [{ index: 0, id: '1', function: { name: hostile, arguments: hostile } }],
        }),
        delta({}, 'tool_calls'),
    );
    await ask(page, hostile.split('\n')[0]);
    await page.locator('.reasoning summary').click();
    await becomes(() => answers(page).innerText(), /<script>window\.hacked=1<\/script>/);
    const shown = page.locator('#messages, #sidebar, #title');
    for (const tag of [
        'img',
        'script',
        'iframe',
        'b',
        'svg[onload]',
        'a[href^="javascript"]',
        'a[href^="data"]',
    ]) {
        assert.equal(await shown.locator(`${tag}:not(.side-head img)`).count(), 0, tag);
    }
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await page.unroute('**/v1/chat/completions');
});

const MARKDOWN = `# Title

Some *text* with \`code\`, a [link](https://example.org/).

1. one
2. two
   - three

| a | b |
|---|--:|
| x | 1 |

> quoted

\`\`\`js
const answer = 42;
\`\`\``;

onPage(
    'Markdown, thoughts and tool calls are shown; a result goes back to the model',
    async (page) => {
        await canned(
            page,
            delta({ role: 'assistant', reasoning_content: 'The **weather** is asked for.' }),
            delta({
                content: MARKDOWN,
            }),
            delta({
                tool_calls: [
                    {
                        index: 0,
                        id: 'c1',
                        function: { name: 'get_weather', arguments: '{"city":' },
                    },
                ],
            }),
            delta({ tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] }),
            delta({}, 'tool_calls'),
        );
        await ask(page, 'Weather?');
        const answer = answers(page);
        await becomes(() => answer.locator('.reasoning').getAttribute('open'), null);
        await answer.locator('.reasoning summary').click();
        await becomes(() => answer.locator('.reasoning strong').innerText(), 'weather');
        const parts = { h3: 1, 'ol > li': 2, 'ol ul li': 1, 'table td': 2, blockquote: 1, em: 1 };
        for (const [what, n] of Object.entries(parts))
            await becomes(
                async () => [what, await answer.locator(`.prose ${what}`).count()],
                [what, n],
            );
        await becomes(
            () => answer.locator('a').getAttribute('rel'),
            'noopener noreferrer nofollow',
        );
        await answer.getByRole('button', { name: 'Copy code' }).first().click();
        await becomes(() => clipboard(page), 'const answer = 42;');
        await becomes(
            () => answer.locator('.tool-calls').innerText(),
            /Calls\s+get_weather[^]*"city": "Oslo"/,
        );
        await shot(page, 'markdown-and-tools');
        await assertAccessible(page, 'Markdown and tools');
        await page.unroute('**/v1/chat/completions');
        const [request] = await Promise.all([
            page.waitForRequest('**/v1/chat/completions'),
            (async () => {
                await page.getByLabel('Result of call 1, get_weather').fill('12 degrees');
                await button(page, 'Send result').click();
            })(),
        ]);
        const sent = request.postDataJSON().messages;
        assert.deepEqual(
            [sent.at(-2).tool_calls[0].function, sent.at(-1)],
            [
                { name: 'get_weather', arguments: '{"city":"Oslo"}' },
                { role: 'tool', content: '12 degrees', tool_call_id: 'c1' },
            ],
        );
        await finished(page);
    },
);

onPage('prefill shows progress, time left and the cache', async (page) => {
    await page.addInitScript(() => {
        const real = window.fetch;
        window.fetch = async (path, init) => {
            if (!String(path).endsWith('/completions')) return real(path, init);
            const say = (o) =>
                new TextEncoder().encode(`data: ${JSON.stringify({ choices: [], ...o })}\n\n`);
            return new Response(
                new ReadableStream({
                    async start(c) {
                        const at = (fletch) => {
                            c.enqueue(
                                say({
                                    fletch: {
                                        prompt_total: 4000,
                                        cached: 1000,
                                        reuse_end: 'x',
                                        queue_position: 0,
                                        ...fletch,
                                    },
                                }),
                            );
                        };
                        // The test says when the server goes on.
                        const next = () =>
                            new Promise((resolve) => {
                                window.next = resolve;
                            });
                        at({ prompt_done: 0, queue_position: 3 });
                        await next();
                        at({ prompt_done: 1000 });
                        await next();
                        at({ prompt_done: 2000 });
                        init.signal.addEventListener('abort', () =>
                            c.error(new DOMException('', 'AbortError')),
                        );
                    },
                }),
                { status: 200 },
            );
        };
    });
    await page.reload();
    await page.getByLabel('Your message').fill('Hello');
    await page.keyboard.press('Enter');
    await page.getByText('Position 3 in the queue').waitFor();
    await page.evaluate(() => window.next());
    await page.getByText(/Processing the prompt: 1,000 of 4,000 tokens/).waitFor();
    await page.evaluate(() => window.next());
    await page
        .getByText(/Processing the prompt: 2,000 of 4,000 tokens, 1,000 cached · [\d.]+ m?s left/)
        .waitFor();
    await becomes(() => page.getByLabel('Prompt processed').getAttribute('value'), '2000');
    await shot(page, 'prefill');
    await page.keyboard.press('Escape');
    await page.getByText('Stopped.').waitFor();
});

onPage(
    'tokens show their probabilities, and an answer goes on from an alternative',
    async (page) => {
        await ask(page, 'Tell me a story.');
        await page.reload(); // probabilities are kept
        await openItem(page, 0);
        await button(page, 'Token probabilities').click();
        const tokens = page.locator('.token');
        await tokens.nth(20).waitFor();
        const texts = await tokens.allTextContents();
        const free = page.locator('.alternatives button:not(:disabled)');
        // The first token where the model hesitated.
        const at = await tokens.evaluateAll((all) =>
            all.findIndex((t, i) => i > 2 && !t.classList.contains('p0')),
        );
        await tokens.nth(at).hover();
        await becomes(() => page.locator('.alternatives li').count(), 5);
        await shot(page, 'tokens');
        const other = (await free.first().locator('code').innerText())
            .replaceAll('␣', ' ')
            .replaceAll('⏎', '\n');
        await free.first().click();
        await page.getByLabel('Branch 2 of 2').waitFor();
        await finished(page);
        await button(page, 'Token probabilities').click();
        await tokens.nth(at + 1).waitFor(); // something came after the alternative
        const now = await tokens.allTextContents();
        assert.deepEqual(now.slice(0, at), texts.slice(0, at));
        assert.equal(now[at].replaceAll('⏎', '\n'), other);
        // The same by keyboard.
        await tokens.first().focus();
        const isFocused = () => tokens.nth(1).evaluate((t) => t === document.activeElement);
        await page.keyboard.press('ArrowRight');
        await becomes(isFocused, true);
        await page.keyboard.press('ArrowDown');
        await becomes(
            () => page.evaluate(() => Boolean(document.activeElement.closest('.alternatives'))),
            true,
        );
        await page.keyboard.press('Escape');
        await becomes(isFocused, true);
    },
);

onPage(
    'settings are sent: seed, length, stop text, system prompt; an answer cut off goes on',
    async (page) => {
        await settingsOf(page, {
            'System prompt': 'Be brief.',
            Seed: 5,
            'Maximum answer length': 6,
            Temperature: 0.8,
        });
        const first = await ask(page, 'Tell me a story.');
        await page.getByText('The answer reached its maximum length.').waitFor();
        await becomes(() => answers(page).locator('.stats summary').innerText(), / · 6 tokens/);
        await button(page, 'Answer again').click();
        await page.getByText('The settings fix the seed').waitFor();
        await button(page, 'Answer again anyway').click();
        await page.getByLabel('Branch 2 of 2').waitFor();
        await finished(page);
        assert.equal(await lastText(page), first);
        await button(page, 'Continue this answer').click();
        await finished(page);
        const longer = await lastText(page);
        assert.ok(longer.startsWith(first) && longer.length > first.length, `${first} | ${longer}`);
        await page.reload();
        await openItem(page, 0);
        await button(page, 'Settings').click();
        await becomes(() => page.getByLabel('Seed').inputValue(), '5');
        await page.getByLabel('Temperature').fill('700');
        await page
            .locator('.field', { has: page.getByLabel('Temperature') })
            .locator('.error')
            .waitFor();
        await page.getByLabel('Temperature').fill('0.7');
        await page.getByLabel('Tools').fill('{');
        await page.getByText(/This is not JSON/).waitFor();
        await shot(page, 'settings');
        await button(page, 'Use for new chats').click();
        await button(page, 'New chat').first().click();
        await becomes(() => page.getByLabel('System prompt').inputValue(), 'Be brief.');
    },
);

onPage('an answer keeps to the format of the settings', async (page) => {
    await settingsOf(page, { 'Maximum answer length': 100, Temperature: 0 });
    await button(page, 'Settings').click();
    const schema = page.getByLabel('JSON schema', { exact: true });
    await page.getByLabel('Answer format').selectOption('schema');
    await page.getByText('The schema is missing.').waitFor();
    await schema.fill('[1]');
    await page.getByText('This is not a JSON object.').waitFor();
    await schema.fill(
        JSON.stringify({
            type: 'object',
            properties: { size: { enum: ['small', 'large'] }, n: { type: 'integer', maximum: 99 } },
            required: ['size', 'n'],
            additionalProperties: false,
        }),
    );
    await becomes(() => page.locator('.settings .error').count(), 0);
    await shot(page, 'format');
    assert.match(await ask(page, 'What is 2+3?'), /^\{\s*"size":\s*"(small|large)"[^]*"n":[^]*\}$/);
    await page.reload(); // it belongs to the conversation
    await openItem(page, 0);
    await button(page, 'Settings').click();
    await becomes(() => page.getByLabel('Answer format').inputValue(), 'schema');
    await page.getByLabel('Answer format').selectOption('json');
    await schema.waitFor({ state: 'hidden' });
    await page.getByLabel('Maximum answer length').fill('1');
    await button(page, 'Answer again').click();
    await button(page, 'Answer again anyway').click(); // the temperature is 0
    await page.getByLabel('Branch 2 of 2').waitFor();
    await finished(page);
    assert.match(await lastText(page), /^\{/);
});

onPage('the prompt is shown as the model sees it', async (page) => {
    await settingsOf(page, { 'System prompt': 'Be brief.' });
    await ask(page, 'What is a GGUF file?');
    await button(page, 'Prompt').click();
    const text = page.getByLabel('Prompt text');
    await text.getByText('What is a GGUF file?').waitFor();
    await becomes(() => text.innerText(), /Be brief\.[^]*What is a GGUF file\?[^]*GGUF/);
    await page.getByLabel('Your message').fill('And now this');
    await text.getByText('And now this').waitFor(); // what is being written is part of it
    await shot(page, 'prompt');
    await page.getByText('Token ids').click();
    await becomes(() => page.locator('.ids').innerText(), /^\d+( \d+)+$/);
});

onPage('copy as curl gives a command with the same answer', async (page) => {
    await settingsOf(page, { Temperature: 1 });
    const said = await ask(page, "Tell me Mira's story.");
    await button(page, 'Copy as curl command').click();
    const command = await becomes(() => clipboard(page), /^curl -N /);
    const out = execFileSync('sh', ['-c', command.replace('curl -N', 'curl -sN')], {
        encoding: 'utf8',
    });
    const chunks = out
        .split('\n')
        .filter((l) => l.startsWith('data: {'))
        .map((l) => JSON.parse(l.slice(6)));
    assert.equal(
        chunks
            .map((c) => c.choices[0]?.delta?.content ?? '')
            .join('')
            .trim(),
        said.trim(),
    );
});

onPage('the live panel shows what the server does', async (page) => {
    await button(page, 'Server').click();
    await page.getByText('held for reuse').waitFor();
    // The plot began before the panel was opened.
    const points = await page.locator('.plot polyline').getAttribute('points');
    assert.ok(points.split(' ').length > 2, points);
    await becomes(
        () => page.locator('.live').innerText(),
        /Running\s+\d+[^]*Waiting\s+\d+[^]*Backend\s+cpu[^]*Context\s+[\d,]+ tokens[^]*Memory\s+[\d.]+ MB planned[^]*Process\s+[\d.]+ MB resident/,
    );
    await ask(page, 'Tell me a story.');
    await page.waitForFunction(() => /[1-9]/.test(document.querySelector('.figures').innerText));
    await shot(page, 'server');
});

onPage('a broken connection says so, and the question can be asked again', async (page) => {
    await settingsOf(page, { Temperature: 0 });
    await page.route('**/v1/chat/completions', (route) =>
        route.fulfill({
            contentType: 'text/event-stream',
            body: `data: ${JSON.stringify(delta({ content: 'Half an' }))}\n\n`,
        }),
    );
    await ask(page, 'Hello!');
    await page
        .getByRole('alert')
        .getByText('The connection was lost before the answer was complete.')
        .waitFor();
    await becomes(() => answers(page).innerText(), /Half an/);
    await page.unroute('**/v1/chat/completions');
    await page.route('**/v1/chat/completions', (route) =>
        route.fulfill({
            status: 503,
            headers: { 'retry-after': '2' },
            json: { error: { message: 'too many requests wait' } },
        }),
    );
    await button(page, 'Try again').click();
    await page.getByRole('alert').getByText('too many requests wait (try again in 2 s)').waitFor();
    await page.unroute('**/v1/chat/completions');
    await button(page, 'Try again').click();
    await becomes(() => lastText(page), /Hello/);
    await finished(page);
    assert.equal(await page.locator('.branches').count(), 0); // tries that failed are none
});

test(
    'a context that is nearly full is announced, with what will be left out',
    TIMEOUT,
    async () => {
        const { page, close } = await visit(browser, await serve('-c', '256'));
        await ask(page, 'What is a GGUF file?');
        await page
            .locator('#room-text')
            .getByText(/^\d+ of 256 tokens$/)
            .waitFor();
        await ask(page, 'How do I make a model smaller?');
        const input = page.getByLabel('Your message');
        await settingsOf(page, { 'Maximum answer length': 8 });
        await input.fill('one two three '.repeat(33));
        await page
            .locator('#context-notice')
            .getByText(
                /^The context is \d+ % full\. The oldest messages .* beginning with “What is a GGUF file\?”\.$/,
            )
            .waitFor();
        await becomes(() => page.locator('.message.omitted').count(), 0);
        await input.fill('one two three '.repeat(45));
        await page.locator('#context-notice').getByText('will no longer be sent').waitFor();
        await becomes(
            () => page.locator('#context-notice').innerText(),
            /first \d+ messages?, beginning with “What is a GGUF file\?”, will/,
        );
        // What is left out no longer counts: the gauge never shows more than there is.
        const [used] = /^\d+/.exec(await page.locator('#room-text').innerText());
        assert.ok(Number(used) <= 256, used);
        const left = await page.locator('.message.omitted').count();
        assert.ok(left === 2 || left === 4, `${left} messages are marked`);
        await shot(page, 'context-full');
        const [request] = await Promise.all([
            page.waitForRequest('**/v1/chat/completions'),
            input.press('Enter'),
        ]);
        assert.equal(request.postDataJSON().messages.length, 5 - left);
        await finished(page);
        await close();
    },
);

test('the key is asked for once', TIMEOUT, async () => {
    writeFileSync(join(folder, 'keys'), 'me right-key-123\n');
    const { page, close } = await visit(browser, await serve('--api-key', join(folder, 'keys')));
    await page.getByLabel('API key').fill('wrong-key-123');
    await shot(page, 'key');
    await assertAccessible(page, 'key');
    await page.keyboard.press('Enter');
    await page.getByText('The server does not accept that key.').waitFor();
    await page.getByLabel('API key').fill('right-key-123');
    await button(page, 'Continue').click();
    await page.locator('#model').waitFor();
    assert.ok((await ask(page, 'Hello!')).length > 0);
    await button(page, 'Copy as curl command').click();
    assert.doesNotMatch(await becomes(() => clipboard(page), /^curl -N /), /right-key/);
    await page.reload();
    await page.locator('#model').waitFor();
    await becomes(() => page.locator('dialog').count(), 0);
    await close();
});

test('of several models one is chosen, and loaded when it is asked', TIMEOUT, async () => {
    const { page, close } = await visit(browser, await serve('--model-dir', 'zoo/tiny'));
    const qwen3 = page.locator('#model option[value=qwen3]');
    await becomes(() => qwen3.textContent(), /^qwen3 · [\d.]+ [KM]B · not loaded$/);
    await page.getByLabel('Model').selectOption('qwen3');
    await ask(page, 'Tell me a story.');
    const stats = answers(page).locator('.stats');
    await stats.locator('summary').click();
    await becomes(() => stats.innerText(), /Model\s+qwen3\n/);
    await becomes(() => qwen3.textContent(), /^qwen3 · [\d.]+ [KM]B · [A-Z]\w+ · loaded$/);
    await page
        .locator('#room-text')
        .getByText(/^\d+ of [\d,]+ tokens$/)
        .waitFor();
    await button(page, 'Server').click();
    await page.locator('.about').getByText('qwen3').waitFor();
    await assertAccessible(page, 'several models');
    // A new chat may have another model; the conversation keeps to its own.
    await button(page, 'New chat').first().click();
    await page.getByLabel('Model').selectOption('llama');
    await openItem(page, 0);
    await becomes(() => page.getByLabel('Model').inputValue(), 'qwen3');
    await page.reload();
    await becomes(() => page.getByLabel('Model').inputValue(), 'qwen3');
    await page.setViewportSize({ width: 360, height: 740 });
    await assertNoSideScroll(page, 'several models');
    await close();
});

const LONG =
    'A very long line of code: `const x = "' +
    'abcdefghij'.repeat(20) +
    '"`\n\n```\n' +
    'word '.repeat(60) +
    '\n```\n\n| ' +
    'column | '.repeat(12) +
    '\n|' +
    '---|'.repeat(12) +
    '\n| ' +
    'value | '.repeat(12) +
    '\n\n' +
    'y'.repeat(300);

onPage(
    'at 360 pixels nothing scrolls sideways, and everything is reachable',
    async (page) => {
        await assertNoSideScroll(page, 'welcome');
        await ask(page, 'Tell me a story.');
        await button(page, 'Token probabilities').click();
        await page.locator('.token').nth(5).click();
        await assertNoSideScroll(page, 'tokens');
        await shot(page, 'phone-tokens');
        await page.keyboard.press('Escape');
        await button(page, 'Token probabilities').click();
        await canned(page, delta({ content: LONG }), delta({}, 'stop'));
        await ask(page, 'Long ' + 'z'.repeat(200));
        await assertNoSideScroll(page, 'long text');
        await page.unroute('**/v1/chat/completions');
        await shot(page, 'phone');
        for (const name of ['Settings', 'Prompt', 'Server']) {
            await button(page, 'More').click();
            await page.getByRole('menuitem', { name }).click();
            await assertNoSideScroll(page, name);
            await button(page, 'Close').click();
        }
        await button(page, 'Conversations').click();
        await page.getByLabel('Search conversations').waitFor();
        await shot(page, 'phone-drawer');
        await openItem(page, 0);
        await page.locator('#sidebar').waitFor({ state: 'hidden' });
    },
    { viewport: { width: 360, height: 740 } },
);

for (const colorScheme of ['light', 'dark']) {
    onPage(
        `axe-core finds nothing in ${colorScheme}`,
        async (page) => {
            await assertAccessible(page, 'welcome');
            await settingsOf(page, { Temperature: 1 });
            await ask(page, 'How do I make a model smaller?');
            await button(page, 'Answer again').click();
            await finished(page);
            await page.locator('.stats summary').click();
            await assertAccessible(page, 'conversation');
            await shot(page, `conversation-${colorScheme}`);
            await button(page, 'Token probabilities').click();
            await page.locator('.token').nth(3).focus();
            await assertAccessible(page, 'tokens');
            await shot(page, `tokens-${colorScheme}`);
            for (const name of ['Settings', 'Prompt', 'Server']) {
                await button(page, name).click();
                await assertAccessible(page, name);
            }
            await act(page, 'How do I make a model smaller?', 'Delete');
            await assertAccessible(page, 'delete');
        },
        { colorScheme },
    );
}

onPage(
    'the colour switch overrides the system and is kept',
    async (page) => {
        const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        const light = await ground();
        await button(page, 'Theme: same as the system').click();
        await button(page, 'Theme: light').click();
        await button(page, 'Theme: dark').waitFor();
        const dark = await ground();
        assert.notEqual(light, dark);
        await page.reload();
        await becomes(ground, dark);
    },
    { colorScheme: 'light' },
);
