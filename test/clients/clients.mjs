// Clients that we did not write, against a server of our own. node clients.mjs BINARY: starts it on
// a free port with the built-in model, prints `ok NAME` or `not ok NAME: why`, fails if any does.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import process from 'node:process';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const binary = process.argv[2];
const server = spawn(binary, ['serve', '--port', '0', '-c', '1024', '--parallel', '4'],
                     {stdio: ['ignore', 'inherit', 'pipe']});
let log = '';

// The address is the one that the log names; the model is there when /readyz says so.
async function address() {
    for await (const piece of server.stderr) {
        log += piece;
        const found = log.match(/listening on (http:\/\/\S+)/);
        if (found) return found[1];
    }
    throw new Error(`the server ended: ${log}`);
}

const base = await address();
server.stderr.on('data', piece => { log += piece; });
for (let i = 0; (await fetch(`${base}/readyz`)).status !== 200; i++) {
    assert(i < 600, `not ready: ${log}`);
    await new Promise(resume => setTimeout(resume, 100));
}

const openai = new OpenAI({baseURL: `${base}/v1`, apiKey: 'none', maxRetries: 0});
const anthropic = new Anthropic({baseURL: base, apiKey: 'none', maxRetries: 0});
const model = (await openai.models.list()).data[0].id;
const question = [{role: 'user', content: 'What is fletch?'}];
const weather = {
    name: 'weather',
    description: 'The weather in a town',
    parameters: {
        type: 'object',
        properties: {town: {type: 'string', maxLength: 12}, days: {type: 'integer', minimum: 0, maximum: 9}},
        required: ['town', 'days'],
        additionalProperties: false,
    },
};
const schema = {
    type: 'object',
    properties: {colour: {enum: ['red', 'green']}, size: {type: 'integer', minimum: 0, maximum: 99}},
    required: ['colour', 'size'],
    additionalProperties: false,
};

function isWeather(input) {
    assert.equal(typeof input.town, 'string');
    assert(Number.isInteger(input.days));
    assert.deepEqual(Object.keys(input).sort(), ['days', 'town']);
}

function isSchema(text) {
    const value = JSON.parse(text);
    assert(['red', 'green'].includes(value.colour));
    assert(Number.isInteger(value.size));
}

const tests = {
    async 'openai: chat'() {
        const r = await openai.chat.completions.create({model, messages: question, temperature: 0});
        assert.equal(r.object, 'chat.completion');
        assert(r.choices[0].message.content.length > 0);
        assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
    },
    async 'openai: a stream says what the whole answer says'() {
        const ask = {model, messages: question, temperature: 0, max_tokens: 24};
        const whole = await openai.chat.completions.create(ask);
        const stream = await openai.chat.completions.create(
            {...ask, stream: true, stream_options: {include_usage: true}});
        let text = '', usage, finish;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta.content ?? '';
            finish ??= chunk.choices[0]?.finish_reason;
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, whole.choices[0].message.content);
        assert.equal(finish, whole.choices[0].finish_reason);
        assert.deepEqual(usage.completion_tokens, whole.usage.completion_tokens);
    },
    async 'openai: n, stop, seed and logprobs'() {
        const ask = {model, messages: question, n: 2, seed: 5, temperature: 1, max_tokens: 8,
                     logprobs: true, top_logprobs: 3, stop: ['zzz']};
        const one = await openai.chat.completions.create(ask);
        const two = await openai.chat.completions.create(ask);
        assert.equal(one.choices.length, 2);
        assert.deepEqual(one.choices.map(c => c.message), two.choices.map(c => c.message));
        assert.equal(one.choices[0].logprobs.content[0].top_logprobs.length, 3);
    },
    async 'openai: reasoning comes apart, whole and streamed'() {
        const ask = {model, messages: [{role: 'user', content: '27+48='}], temperature: 0, max_tokens: 80,
                     chat_template_kwargs: {enable_thinking: true}};
        const whole = (await openai.chat.completions.create(ask)).choices[0].message;
        let thought = '', said = '';
        for await (const chunk of await openai.chat.completions.create({...ask, stream: true})) {
            thought += chunk.choices[0]?.delta.reasoning_content ?? '';
            said += chunk.choices[0]?.delta.content ?? '';
        }
        assert(whole.reasoning_content.length > 0 && whole.content.length > 0);
        assert(!/<\/?think>/.test(whole.reasoning_content + whole.content));
        assert.equal(thought, whole.reasoning_content);
        assert.equal(said, whole.content);
    },
    async 'openai: a tool that must be called'() {
        const ask = {model, messages: question, max_tokens: 600,
                     tools: [{type: 'function', function: weather}],
                     tool_choice: {type: 'function', function: {name: 'weather'}}};
        const r = await openai.chat.completions.create(ask);
        const call = r.choices[0].message.tool_calls[0];
        assert.equal(call.function.name, 'weather');
        isWeather(JSON.parse(call.function.arguments));
        assert.equal(r.choices[0].finish_reason, 'tool_calls');
        const again = await openai.chat.completions.create(
            {...ask, max_tokens: 8, tool_choice: 'none', messages: [...question, r.choices[0].message,
                {role: 'tool', tool_call_id: call.id, content: 'rain'}]});
        assert.equal(again.choices[0].message.tool_calls, undefined);
    },
    async 'openai: streamed tool calls, put together by the client'() {
        const r = await openai.chat.completions.stream({
            model, messages: question, max_tokens: 600, tool_choice: 'required',
            tools: [{type: 'function', function: weather}]}).finalChatCompletion();
        isWeather(JSON.parse(r.choices[0].message.tool_calls[0].function.arguments));
    },
    async 'openai: json_schema and json_object'() {
        const r = await openai.chat.completions.create({
            model, messages: question, max_tokens: 60,
            response_format: {type: 'json_schema', json_schema: {name: 'thing', schema, strict: true}}});
        isSchema(r.choices[0].message.content);
        const any = await openai.chat.completions.create({
            model, messages: question, max_tokens: 60, response_format: {type: 'json_object'}});
        if (any.choices[0].finish_reason === 'stop') JSON.parse(any.choices[0].message.content);
    },
    async 'openai: responses'() {
        const r = await openai.responses.create(
            {model, input: 'What is fletch?', instructions: 'Be brief.', max_output_tokens: 16});
        assert.equal(r.object, 'response');
        assert(r.output_text.length > 0);
        assert(['completed', 'incomplete'].includes(r.status));
        assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
    },
    async 'openai: responses with items, a schema and a tool'() {
        const r = await openai.responses.create({
            model, max_output_tokens: 60,
            input: [{role: 'user', content: [{type: 'input_text', text: 'Hello'}]}],
            text: {format: {type: 'json_schema', name: 'thing', schema, strict: true}}});
        isSchema(r.output_text);
        const called = await openai.responses.create({
            model, input: 'Weather?', max_output_tokens: 600, tool_choice: 'required',
            tools: [{type: 'function', ...weather, strict: true}]});
        const call = called.output.find(item => item.type === 'function_call');
        isWeather(JSON.parse(call.arguments));
        const more = await openai.responses.create({
            model, max_output_tokens: 8, input: [{role: 'user', content: 'Weather?'}, call,
                {type: 'function_call_output', call_id: call.call_id, output: 'rain'}]});
        assert.equal(more.error, null);
    },
    async 'openai: a stream of responses, put together by the client'() {
        const stream = openai.responses.stream({model, input: 'What is fletch?', temperature: 0});
        const types = [];
        let text = '', last = -1;
        for await (const event of stream) {
            types.push(event.type);
            assert(event.sequence_number > last);
            last = event.sequence_number;
            if (event.type === 'response.output_text.delta') text += event.delta;
        }
        const r = await stream.finalResponse();
        assert.equal(r.output_text, text);
        assert.equal(types[0], 'response.created');
        assert.equal(types.at(-1), 'response.completed');
    },
    async 'openai: embeddings'() {
        const input = ['a boy and a dog', 'a boy and a cat', 'fletch convert MODEL'];
        const r = await openai.embeddings.create({model, input});
        const plain = await openai.embeddings.create({model, input, encoding_format: 'float'});
        const [a, b, c] = r.data.map(d => d.embedding);
        const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
        assert(Math.abs(dot(a, a) - 1) < 1e-4);
        assert(dot(a, b) > dot(a, c));
        assert(Math.abs(dot(a, plain.data[0].embedding) - 1) < 1e-4);
        assert(r.usage.prompt_tokens > 0);
    },
    async 'openai: embeddings beside an answer change neither'() {
        const ask = {model, messages: question, temperature: 0, max_tokens: 40, ignore_end: true};
        const texts = Array.from({length: 4}, (_, i) => `${i} `.repeat(100));
        const alone = await openai.embeddings.create({model, input: texts});
        const whole = await openai.chat.completions.create(ask);
        const both = await Promise.all([openai.chat.completions.create(ask),
            ...texts.map(input => openai.embeddings.create({model, input}))]);
        assert.equal(both[0].choices[0].message.content, whole.choices[0].message.content);
        assert.deepEqual(both.slice(1).map(r => r.data[0].embedding), alone.data.map(d => d.embedding));
    },
    async 'openai: a client that goes away frees its place'() {
        const gone = new AbortController();
        const stream = await openai.chat.completions.create(
            {model, messages: question, stream: true, max_tokens: 900, ignore_end: true},
            {signal: gone.signal});
        for await (const chunk of stream) {
            assert(chunk);
            gone.abort();
        }
        for (let i = 0; ; i++) {
            const text = await (await fetch(`${base}/metrics`)).text();
            if (/^fletch_running_requests(\{.*\})? 0$/m.test(text)) break;
            assert(i < 300, text);
            await new Promise(resume => setTimeout(resume, 100));
        }
    },
    async 'openai: errors are of the right class'() {
        await assert.rejects(openai.models.retrieve('nothing'), OpenAI.NotFoundError);
        await assert.rejects(openai.chat.completions.create({model, messages: []}),
                             OpenAI.BadRequestError);
    },
    async 'anthropic: messages'() {
        const r = await anthropic.messages.create(
            {model, max_tokens: 24, system: 'Be brief.', messages: question, temperature: 0});
        assert.equal(r.type, 'message');
        assert.equal(r.content[0].type, 'text');
        assert(r.usage.input_tokens + r.usage.cache_read_input_tokens > 0);
    },
    async 'anthropic: a stream says what the whole answer says'() {
        const ask = {model, max_tokens: 24, messages: question, temperature: 0};
        const whole = await anthropic.messages.create(ask);
        const stream = anthropic.messages.stream(ask);
        let text = '';
        stream.on('text', piece => { text += piece; });
        const r = await stream.finalMessage();
        assert.equal(r.content[0].text, whole.content[0].text);
        assert.equal(text, whole.content[0].text);
        assert.equal(r.stop_reason, whole.stop_reason);
    },
    async 'anthropic: stop sequences are named'() {
        const ask = {model, max_tokens: 40, messages: question, temperature: 0};
        const whole = (await anthropic.messages.create(ask)).content[0].text;
        const stop = whole.slice(8, 12);
        const r = await anthropic.messages.create({...ask, stop_sequences: ['zzz', stop]});
        assert.equal(r.stop_reason, 'stop_sequence');
        assert.equal(r.stop_sequence, stop);
        assert.equal(r.content[0]?.text ?? '', whole.slice(0, whole.indexOf(stop)));
    },
    async 'anthropic: tools'() {
        const tools = [{name: 'weather', description: 'The weather', input_schema: weather.parameters}];
        const ask = {model, max_tokens: 600, tools, tool_choice: {type: 'tool', name: 'weather'}};
        const r = await anthropic.messages.create({...ask, messages: question});
        const use = r.content.find(block => block.type === 'tool_use');
        isWeather(use.input);
        assert.equal(r.stop_reason, 'tool_use');
        const streamed = await anthropic.messages.stream({...ask, messages: question}).finalMessage();
        isWeather(streamed.content.find(block => block.type === 'tool_use').input);
        const more = await anthropic.messages.create({
            model, max_tokens: 8, tools, tool_choice: {type: 'none'}, messages: [...question,
                {role: 'assistant', content: r.content},
                {role: 'user', content: [{type: 'tool_result', tool_use_id: use.id, content: 'rain'}]}]});
        assert.notEqual(more.stop_reason, 'tool_use');
    },
    async 'anthropic: a schema'() {
        const r = await anthropic.messages.create({model, max_tokens: 60, messages: question,
            output_config: {format: {type: 'json_schema', schema}}});
        isSchema(r.content[0].text);
    },
    async 'anthropic: count_tokens counts what messages count'() {
        const ask = {model, messages: question, system: 'Be brief.'};
        const count = await anthropic.messages.countTokens(ask);
        const r = await anthropic.messages.create({...ask, max_tokens: 1});
        assert.equal(count.input_tokens, r.usage.input_tokens + r.usage.cache_read_input_tokens);
    },
    async 'anthropic: errors are of the right class'() {
        await assert.rejects(anthropic.models.retrieve('nothing'), Anthropic.NotFoundError);
        await assert.rejects(anthropic.messages.create({model, max_tokens: 1, messages: []}),
                             Anthropic.BadRequestError);
    },
    async 'both: a lone model answers to the names that programs come with'() {
        const {data, response} = await openai.chat.completions
            .create({model: 'gpt-4o', max_tokens: 1, messages: question}).withResponse();
        assert.equal(data.model, model);
        assert.match(response.headers.get('X-Fletch-Notice'), /gpt-4o/);
        const r = await anthropic.messages.create({model: 'claude-sonnet-4-5', max_tokens: 1, messages: question});
        assert.equal(r.model, model);
    },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
    try {
        await test();
        console.log(`ok ${name}`);
    } catch (error) {
        failed++;
        console.log(`not ok ${name}: ${String(error?.stack ?? error).split('\n').slice(0, 6).join(' | ')}`);
    }
}
server.kill('SIGTERM');
const code = await new Promise(resume => server.on('exit', resume));
if (code !== 0) {
    failed++;
    console.log(`not ok the server ends well: exit status ${code}: ${log.slice(-2000)}`);
}
process.exit(failed ? 1 : 0);
