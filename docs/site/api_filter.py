# SPDX-License-Identifier: Apache-2.0
"""Doxygen's input filter: headers as they are, but for what Doxygen cannot know.

- Members that a concept asks of every type of its kind, such as an operation's tensors() and cost(), get the concept's description where
  they have none of their own, so that headers need not repeat it.
- Shapes that stand behind a member, `Tensor<T> x;  // [T, H]`, become its description.
- Concepts that "as X asks" names become links.
- The macros of GoogleTest, which Doxygen takes for functions, are blanked.

Lines keep their numbers.
"""
import re
import sys

CONTRACTS = [  # (path, declaration, what the concept asks)
    (r".", r"auto tensors\(\) const", "What it reads and writes, as device::Operation asks."),
    (r".", r"(device::)?Cost cost\(\) const", "Its least work, as device::Operation asks."),
    (r"/(operations|testing)/|/device/", r"void check\(\) const", "Throws LogicError where shapes do not fit each other."),
    (r"/device/", r"void run\((Cpu|Cuda)::Stream&", "The kernel. Call it through device::enqueue."),
    (r"/device/", r"std::int64_t scratch\(const (Cpu|Cuda)::Planner&", "Bytes of memory that the kernel takes while it works."),
    (r"/(device|queued)/", r"static std::byte\* allocate\(", "Zeroed memory, aligned as tensors are. Throws MemoryError."),
    (r"/(device|queued)/", r"static void deallocate\(", "Gives memory of `allocate` back."),
    (r"/(device|queued)/", r"static void poison\(", "Marks released memory, as device::Device asks."),
    (r"/(device|queued)/", r"static void unpoison\(", "Undoes `poison`, where memory is used again."),
    (r"/(device|queued)/", r"static std::byte\* unbacked\(", "An address for a block that has no memory; null where all have."),
    (r"/(device|queued)/", r"static void move\(", "Copies bytes from or to the host, or within the device, in the queue's order."),
    (r"/(device|queued)/", r"static void round\(", "Rounds floats to a wire type, in the queue's order."),
    (r"/(device|queued)/", r"static void sum_in_order\(", "sum = or += the parts, in float, in their order."),
    (r"/(device|queued)/", r"Event record\(\)", "An event that happens when all that was enqueued is done."),
    (r"/(device|queued)/", r"void wait\(const \w+& event\)", "What is enqueued from here on begins after the event."),
    (r"/(device|queued)/", r"void synchronize\(\)", "Returns when all that was enqueued is done."),
    (r"/(device|queued)/", r"bool happened\(\) const", "Whether what came before the event is done."),
    (r"/(device|queued)/", r"void launch\(Queue& queue\) const", "Enqueues the work that was captured."),
    (r"/(device|queued)/", r"int threads\(\) const", "The host's threads that compute."),
    (r"/(device|queued)/", r"Arena& arena\(\) const", "The rank's arena, of which kernels take scratch."),
    (r".", r"(?P<own>\w+)(<\w+>)?\((?P=own)(<\w+>)?&&\s?\w*\)", "Moved, not copied."),
    (r".", r"\w+(<\w+>)?& operator=\(\w+(<\w+>)?&&\s?\w*\)", "Moved, not copied."),
    (r".", r"std::string to_text\(\w+ value\)", "As flags are written."),
    (r".", r"(static )?std::string text\(\)", "As logs and the ranks' agreement name it."),
    (r".", r"static constexpr std::string_view name\b", "As flags, logs and the ranks' agreement name it."),
    (r"sharding/", r"using AtRest =", "Placement of weights, gradients and optimizer state between uses, over the mesh's last axis."),
    (r"sharding/", r"using Across =", "Placement of main weights and optimizer state over the mesh's outer axis."),
    (r"sharding/", r"using Layout =", "The layout policy: which rank has which elements."),
    (r"sharding/", r"static constexpr int mesh_axes =", "Axes of the mesh: 2 where ranks form groups, else 1."),
    (r"sharding/", r"static constexpr bool offloads_optimizer =", "Whether main weights and optimizer state live in host memory."),
    (r"buffer/", r"static constexpr bool keeps_tensors_whole =", "Whether no tensor is cut, as optimizers of whole matrices need."),
    (r"buffer/", r"static constexpr bool keeps_whole_across =", "Whether no tensor is cut across groups of ranks either."),
    (r"precision/", r"using Compute =", "Type of weights and activations in forward and backward."),
    (r"precision/", r"using Main =", "Type of the optimizer's main weights."),
    (r"precision/", r"using Accumulate =", "Type of gradients, summed over tiles and micro-batches."),
    (r"precision/", r"using Reduce =", "Type of gradients sent in reductions."),
    (r"comm/", r"using Device =", "Whose memory it moves, as Communicator asks."),
    (r"comm/", r"using Request =", "A started collective, as comm::AsyncRequest asks."),
    (r"comm/|testing/", r"\w+ split\(int", "%Ranks of equal color form a new communicator, in the order of their ranks here."),
    (r"sharding/", r"(constexpr )?sharding::Rules rules\(\) const", "Rules of its schedule, as ShardingStrategy asks."),
    (r"sharding/", r"(constexpr )?sharding::Facts facts\(\) const", "What memory and mesh must know, as ShardingStrategy asks."),
    (r"sharding/", r"void visit\(PolicyParts& parts\)", "Lists its name and numbers, from which its texts are made."),
    (r"sharding/", r"int ranks_per_group\(\) const", "%Ranks of the mesh's inner axis."),
    (r"sharding/", r"(Layout|L|buffer::AnyLayout) layout\(\) const", "The layout policy, with its numbers."),
    (r"tiling/", r"constexpr TilePlan plan\(const Problem& problem\) const", "The plan, as tiling::Tiling asks."),
    (r"nn/", r"\S*Parameters parameters\(\) const", "Names, shapes and initial values, in the order of its Fields."),
    (r"nn/", r"void forward\(", "y from x; keeps in `saved` what backward needs. Shapes are those of its concept in nn/module.hpp."),
    (r"nn/", r"void backward\(", "Gradients of the weights, and dx over dy. Shapes are those of its concept in nn/module.hpp."),
    (r"nn/", r"struct Saved \{", "What forward keeps for backward."),
    (r"nn/", r"tiling::TilePlan plan\(Context<L>& context\) const", "How the sequence is cut: the policy's plan, no larger than untiled."),
    (r"nn/", r"std::int64_t logits_columns\(\) const", "Columns of logits, as nn::GeneratingHead asks."),
    (r"nn/", r"void loss_only\(", "Adds the loss alone to loss[0]."),
    (r"nn/", r"BatchCounts counts\(\) const", "Valid targets, and the squares of the documents' lengths."),
    (r"nn/", r"void replay\(", "Makes `saved` again from x, without y."),
    (r"nn/", r"void extend\(", "Forward of sequences that begin or go on, as nn::CachingBlock asks."),
    (r"nn/", r"std::int64_t cache_columns\(\) const", "Numbers that it keeps of each token, as nn::CachingBlock asks."),
    (r"nn/", r"Shared share\(", "What all blocks read in this pass, as nn::EntryModule asks."),
    (r"(optim|training)/", r"static constexpr std::string_view name\(\)|std::string_view name\(\) const", "As checkpoints, logs and flags have it."),
    (r"(optim|training)/", r"(static constexpr )?Grain grain\(\)", "What an update must have of a parameter at once."),
    (r"(optim|training)/", r"std::span<const (optim::)?StateSpec> states\(", "Names of the states of a parameter."),
    (r"(optim|training)/", r"void update\(", "Enqueues one step of a piece, as optim::Optimizer asks."),
    (r"(optim|models|training|train)/", r"static void visit\(", "Calls visitor(name, value, help) for each value of `self`."),
    (r"(checkpoint|precision|report)/", r"static void visit\(", "Calls visitor(name, value) for each field of `self`."),
    (r"(optim|models|training)/", r"void validate\(\) const", "Throws InputError where a value cannot work."),
    (r"(optim|training)/", r"static std::int64_t work\(", "What stepping a parameter costs; buffer::Owned balances it over ranks."),
    (r"buffer/", r"std::vector<Layout> build\(|std::vector<buffer::Layout> build\(", "Lays out all groups of a model, as buffer::LayoutPolicy asks."),
    (r"data/", r"void fill\(Storage|Batch fill\(", "Fills a batch from numbered samples, as data::Source asks."),
    (r"data/", r"std::int64_t training\(\) const", "Samples to train on, as data::Source asks."),
    (r"data/", r"std::int64_t validation\(\) const", "Samples that are held out, as data::Source asks."),
    (r"data/", r"std::int64_t sequence_length\(\) const", "Tokens of a sample, as data::Source asks."),
    (r"data/", r"Storage storage\(", "Memory of a batch, as data::Source asks."),
    (r"data/", r"std::string identity\(\) const", "What ranks and resumed runs must agree on, as data::Source asks."),
]
EACH_TEST = re.compile(r"^(FSDP_[A-Z]+\(|#define FSDP_|#undef FSDP_)")
MACRO = re.compile(r"^(FSDP_SUITE|TYPED_TEST_SUITE_P|TYPED_TEST_P|REGISTER_TYPED_TEST_SUITE_P|GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST)\(")


def without_macros(lines):
    """Macros of GoogleTest at a line's begin, with the bodies of tests, as empty lines."""
    kept, inside, continued, previous = [], None, False, ""
    for line in lines:
        macro = MACRO.match(line)
        if inside is None and macro:
            inside = {"TYPED_TEST_P": "}", "FSDP_SUITE": "));"}.get(macro[1], ");")
        if inside is None:
            continued = EACH_TEST.match(line) or (continued and previous.endswith("\\\n"))
            previous = line
            kept.append("\n" if continued else line)
            continue
        kept.append("\n")
        last = line.rstrip()
        if last.startswith(inside) or (inside in last and (inside != "}" or last.endswith("}"))):
            inside = None
    return kept


ASKED = re.compile(r"\b([Aa]s) ((?:\w+::)?[A-Z]\w+) asks")
SHAPE = re.compile(r"^(\s+[^/]*;\s*)// (\[.*)$")
SPACES = {"Communicator": "comm::", "QueuedCommunicator": "comm::"}


def linked(line):
    """A line with its shape as a description, and concepts as links where it is a comment."""
    line = SHAPE.sub(r"\1///< \2", line)
    return ASKED.sub(lambda found: f'{found[1]} @ref fsdp::{SPACES.get(found[2], "")}{found[2]} "{found[2]}" asks', line) if "//" in line or "/**" in line else line


def begin_of(lines, at):
    """The first line of a declaration: of its template head, where it has one."""
    while at > 0 and re.match(r"^\s*(template <|requires )", lines[at - 1]) and not lines[at - 1].rstrip().endswith((";", "}")):
        at -= 1
    return at


def main():
    path = sys.argv[1]
    with open(path) as file:
        lines = file.readlines()
    if "/testing/" in path:
        lines = without_macros(lines)
    contracts = [(re.compile(r"^\s*(constexpr )?(" + declaration + ")"), says) for place, declaration, says in CONTRACTS if re.search(place, path)]
    for at, line in enumerate(lines):
        says = next((says for declaration, says in contracts if declaration.match(line)), None)
        if says is not None:
            begin = begin_of(lines, at)
            before = lines[begin - 1].strip() if begin else ""
            if before == "/// @}" or not before.startswith(("///", "*/")) and "///<" not in line:
                lines[begin] = f"/** {says} */ " + lines[begin].lstrip()
    sys.stdout.writelines(map(linked, lines))


if __name__ == "__main__":
    main()
