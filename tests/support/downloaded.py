# SPDX-License-Identifier: Apache-2.0
"""Small random models that look downloaded: as huggingface_hub's cache holds what a folder of the hub has."""
import hashlib, json, math, pathlib, random, struct

TEXT = pathlib.Path(__file__).parent.parent / 'text'

# tokenizer and template: of tests/text; tokens: those that the template writes; stops: their names, of
# generation_config.json; tied: whether the head is, and whether it is stored all the same.
LLAMA3_TOKENS = ['<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>', '<|python_tag|>', '<|eom_id|>']
FAMILIES = {
    'llama2': dict(tokenizer='llama2', tokens=[], stops=['</s>'], bos='<s>', eos='</s>', jinja=False, drawn=dict(temperature=0.6, top_p=0.9),
                   config=dict(model_type='llama', rms_norm_eps=1e-05, rope_scaling=None, pretraining_tp=1, max_position_embeddings=4096)),
    'llama3': dict(tokenizer='llama3', template='llama3', tokens=LLAMA3_TOKENS, stops=['<|endoftext|>', '<|eot_id|>'], bos='<|begin_of_text|>',
                   eos='<|eot_id|>', jinja=False, drawn=dict(temperature=0.6, top_p=0.9),
                   config=dict(model_type='llama', rms_norm_eps=1e-05, rope_theta=500000.0, max_position_embeddings=8192)),
    'llama3.1': dict(tokenizer='llama3', template='llama31', tokens=LLAMA3_TOKENS, stops=['<|endoftext|>', '<|eom_id|>', '<|eot_id|>'],
                     bos='<|begin_of_text|>', eos='<|eot_id|>', jinja=True, drawn=dict(temperature=0.6, top_p=0.9),
                     config=dict(model_type='llama', rms_norm_eps=1e-05, rope_theta=500000.0, max_position_embeddings=131072, tie_word_embeddings=True,
                                 mlp_bias=False, head_dim=8,
                                 rope_scaling=dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
                                                   rope_type='llama3'))),
    'mistral': dict(tokenizer='mistral', template='mistral', tokens=['[INST]', '[/INST]'], stops=['</s>'], bos='<s>', eos='</s>', jinja=False, drawn={},
                    config=dict(model_type='mistral', rms_norm_eps=1e-05, rope_theta=1000000.0, max_position_embeddings=32768, sliding_window=None)),
    'qwen2': dict(tokenizer='qwen', template='chatml', tokens=[], stops=['<|im_end|>', '<|endoftext|>'], bos=None, eos='<|im_end|>', jinja=False,
                  drawn=dict(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.1),
                  config=dict(model_type='qwen2', rms_norm_eps=1e-06, rope_theta=1000000.0, max_position_embeddings=32768, sliding_window=32768,
                              use_sliding_window=False, max_window_layers=2, tie_word_embeddings=True)),
    'qwen3': dict(tokenizer='qwen', template='qwen3', tokens=['<think>', '</think>'], stops=['<|im_end|>', '<|endoftext|>'], bos=None, eos='<|im_end|>',
                  jinja=True, stored_head=True, drawn=dict(temperature=0.6, top_k=20, top_p=0.95),
                  config=dict(model_type='qwen3', rms_norm_eps=1e-06, rope_theta=1000000, max_position_embeddings=40960, sliding_window=None,
                              use_sliding_window=False, max_window_layers=2, tie_word_embeddings=True, head_dim=8, rope_scaling=None)),
}
LLAMA2_TEMPLATE = ("{% for message in messages %}{% if message['role'] == 'system' %}{{ '<<SYS>>\\n' + message['content'] + '\\n<</SYS>>\\n\\n' }}"
                   "{% elif message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}"
                   "{% else %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}")


def token(number, content):
    return dict(id=number, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)


def text_files(family):
    """The tokenizer's files and generation_config.json, by name; and the number of tokens."""
    tokenizer = json.loads((TEXT / 'tokenizers' / (family['tokenizer'] + '.json')).read_text())
    templates = json.loads((TEXT / 'chat_templates.json').read_text())['templates']
    template = templates[family['template']] if 'template' in family else LLAMA2_TEMPLATE
    added, vocabulary = tokenizer['added_tokens'], tokenizer['model']['vocab']
    size = 1 + max([*vocabulary.values(), *(each['id'] for each in added)])
    for content in family['tokens']:
        added.append(token(size, content))
        size += 1
    ids = {**vocabulary, **{each['content']: each['id'] for each in added}}
    specials = {key: family[key[:3]] for key in ('bos_token', 'eos_token') if family[key[:3]]}
    config = dict(add_bos_token=bool(family['bos']), added_tokens_decoder={str(each['id']): {key: value for key, value in each.items() if key != 'id'}
                                                                          for each in added},
                  bos_token=family['bos'], eos_token=family['eos'], pad_token=None, clean_up_tokenization_spaces=False,
                  model_max_length=1000000000000000019884624838656, tokenizer_class='PreTrainedTokenizerFast')
    files = {'special_tokens_map.json': {key: dict(content=value, lstrip=False, normalized=False, rstrip=False, single_word=False)
                                         for key, value in specials.items()},
             'generation_config.json': dict(bos_token_id=ids.get(family['bos']), eos_token_id=[ids[name] for name in family['stops']], do_sample=True,
                                            transformers_version='4.45.1', **family['drawn'])}
    if len(family['stops']) == 1:
        files['generation_config.json']['eos_token_id'] = ids[family['stops'][0]]
    files['tokenizer.json'] = tokenizer
    if family['jinja']:
        files['chat_template.jinja'] = template.encode()
    else:
        config['chat_template'] = template
    files['tokenizer_config.json'] = config
    return files, size, files['generation_config.json']


def bf16(value):
    word, = struct.unpack('<I', struct.pack('<f', value))
    return struct.pack('<H', (word + 0x7fff + (word >> 16 & 1)) >> 16)


def tensors(config, family, draw):
    """The model's weights, in bfloat16: bytes and shapes by name."""
    drawn = [draw.gauss(0, 0.1) for _ in range(1000)]
    values = {1: [bf16(1 + value) for value in drawn], 2: [bf16(value) for value in drawn]}  # of vectors and of matrices

    def normal(*shape):
        return b''.join(draw.choices(values[len(shape)], k=math.prod(shape))), shape
    hidden, width, inner, vocabulary = config['hidden_size'], 8, config['intermediate_size'], config['vocab_size']
    heads, kv_heads = config['num_attention_heads'], config['num_key_value_heads']
    made = {'model.embed_tokens.weight': normal(vocabulary, hidden), 'model.norm.weight': normal(hidden)}
    for layer in range(config['num_hidden_layers']):
        before = f'model.layers.{layer}.'
        for name, rows in (('q', heads * width), ('k', kv_heads * width), ('v', kv_heads * width)):
            made[f'{before}self_attn.{name}_proj.weight'] = normal(rows, hidden)
            if config['model_type'] == 'qwen2': made[f'{before}self_attn.{name}_proj.bias'] = normal(rows)
        made[before + 'self_attn.o_proj.weight'] = normal(hidden, heads * width)
        for name in ('gate', 'up'): made[f'{before}mlp.{name}_proj.weight'] = normal(inner, hidden)
        made[before + 'mlp.down_proj.weight'] = normal(hidden, inner)
        for name in ('input_layernorm', 'post_attention_layernorm'): made[f'{before}{name}.weight'] = normal(hidden)
        if config['model_type'] == 'qwen3':
            for name in ('q_norm', 'k_norm'): made[f'{before}self_attn.{name}.weight'] = normal(width)
        if family['tokenizer'] == 'llama2': made[before + 'self_attn.rotary_emb.inv_freq'] = normal(width // 2)
    if not config.get('tie_word_embeddings'): made['lm_head.weight'] = normal(vocabulary, hidden)
    elif family.get('stored_head'): made['lm_head.weight'] = made['model.embed_tokens.weight']
    return made


def weight_files(made):
    """Two shards and their index, by name."""
    names, index, files = sorted(made), {}, {}
    for i, part in enumerate((names[:len(names) // 2], names[len(names) // 2:])):
        shard, entries, blob = f'model-{i + 1:05d}-of-00002.safetensors', {'__metadata__': {'format': 'pt'}}, b''
        for name in part:
            content, shape = made[name]
            entries[name] = dict(dtype='BF16', shape=shape, data_offsets=[len(blob), len(blob) + len(content)])
            blob += content
            index[name] = shard
        header = json.dumps(entries).encode()
        files[shard] = struct.pack('<Q', len(header)) + header + blob
    files['model.safetensors.index.json'] = dict(metadata=dict(total_size=sum(len(content) for content, _ in made.values())), weight_map=index)
    return files


def make(name, out):
    """Writes a model of FAMILIES: out/blobs has its files by their digests, out/snapshots/main the links to them, by their names."""
    family = FAMILIES[name]
    files, vocabulary, generation = text_files(family)
    config = dict(architectures=[{'llama': 'Llama', 'mistral': 'Mistral', 'qwen2': 'Qwen2', 'qwen3': 'Qwen3'}[family['config']['model_type']] + 'ForCausalLM'],
                  attention_dropout=0.0, bos_token_id=generation['bos_token_id'], eos_token_id=generation['eos_token_id'], hidden_act='silu',
                  hidden_size=24, initializer_range=0.02, intermediate_size=40, num_attention_heads=3, num_hidden_layers=2, num_key_value_heads=1,
                  torch_dtype='bfloat16', transformers_version='4.45.1', use_cache=True, vocab_size=vocabulary + 5, **family['config'])
    files['config.json'] = config
    files |= weight_files(tensors(config, family, random.Random(name)))
    files |= {'README.md': b'---\nlicense: other\n---\n# A model\n', '.gitattributes': b'*.safetensors filter=lfs diff=lfs merge=lfs -text\n',
              'LICENSE': b'A licence.\n'}
    if name.startswith('llama'):
        files |= {'original/params.json': dict(dim=24), 'original/consolidated.00.pth': b'PK\3\4 of torch', 'original/tokenizer.model': b'tokens'}
    if name in ('llama2', 'mistral'): files['tokenizer.model'] = b'of sentencepiece'
    if name.startswith('qwen'): files |= {'vocab.json': {'a': 0}, 'merges.txt': b'#version: 0.2\n'}
    snapshot = out / 'snapshots' / 'main'
    (out / 'blobs').mkdir(parents=True)
    for path, content in files.items():
        content = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode()
        digest = (hashlib.sha256 if 'safetensors' in path else hashlib.sha1)(content).hexdigest()
        (out / 'blobs' / digest).write_bytes(content)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(pathlib.Path(*['..'] * (2 + path.count('/')), 'blobs', digest))
