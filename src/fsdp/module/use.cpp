// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/use.hpp>

#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/module/group_tasks.hpp>

namespace fsdp {

using State = PassProgress::State;

PassCursor::PassCursor(ModuleState& module, sharding::Pass kind, int order, int micro_batches, bool makes_step,
                       bool moves_activations)
    : module_(module),
      kind_(kind),
      makes_step_(makes_step),
      planned_(module.planned(kind, order, micro_batches)),
      thrown_(std::uncaught_exceptions()) {
  require(!schedule().empty(), "a ShardedModule ran a pass that its purpose does not have; construct it for this one");
  if (moves_activations) return;
  for (const sharding::Task& task : schedule())
    if (sharding::moves_activations(task.action))
      throw LogicError(message("pass: ", text(task),
                               " moves activations, which is the caller's work; give ActivationWork, or leave out what "
                               "asks for it (UnitOptions::offload_inputs, Unit::stages)"));
}

bool PassCursor::must_abandon() {
  if (const auto& without = module_.without_values(); !without.empty())
    throw LogicError(message("pass: ", without.front(), without.size() == 1 ? " has" : " and others have",
                             " no values yet; initialize, load or set them first"));
  PassProgress& progress = module_.progress();
  require(progress.state != State::running, "pass: another one is under way; finish, forfeit or abandon it first");
  if (progress.state == State::left) {
    progress.state = State::interrupted;
    throw LogicError(message("pass: the one before was left unfinished, ", progress.at,
                             " tasks after its begin; finish it, or forfeit or abandon it"));
  }
  return progress.state == State::interrupted;
}

void PassCursor::begin() {
  PassProgress& progress = module_.progress();
  const bool has_gradients = progress.has_gradients && !makes_step_;
  progress = {
      .state = State::running, .has_gradients = has_gradients, .forfeited = has_gradients && progress.forfeited};
}

void PassCursor::end() {
  over_ = true;
  module_.progress().state = State::idle;
  if (makes_step_) module_.progress().has_gradients = true;
}

void PassCursor::abandon() {
  over_ = true;
  inside_ = false;
  module_.progress().state = State::interrupted;
}

void PassCursor::leave() { module_.progress() = {.state = State::left, .at = at_}; }

bool PassCursor::unwinds() const { return std::uncaught_exceptions() > thrown_; }

std::optional<sharding::Task> PassCursor::next() const {
  for (std::size_t i = at_; i < schedule().size(); ++i)
    if (sharding::computes(schedule()[i].action)) return schedule()[i];
  return std::nullopt;
}

bool PassCursor::moves(const sharding::Task& task) const {
  return computes(task) && (!forfeited_ || task.action == sharding::Action::exchange);
}

std::string PassCursor::text_of(const sharding::Task& task) const { return sharding::text_of(task, module_.names()); }

/// Returns a task in the caller's terms: the call for Action::loss is `both`.
std::string PassCursor::text(const sharding::Task& task) const {
  return task.action == sharding::Action::loss ? "both " + sharding::subject_of(task, module_.names()) : text_of(task);
}

void PassCursor::require_under_way() const { require(!over_, "pass: it is over; begin another one"); }

void PassCursor::require_outside(std::string_view what, const char* then) const {
  require_under_way();
  if (inside_) throw LogicError(message("pass: ", what, " inside of a use, that of ", text(task()), "; ", then));
}

void PassCursor::require_finished() const {
  require_outside("finish");
  if (const auto left = next())
    throw LogicError(message("pass: finished before ", text(*left), " of micro-batch ", left->micro_batch));
}

sharding::Task PassCursor::require_next() const {
  const std::optional<sharding::Task> found = next();
  require(found.has_value(), "pass: nothing is left to compute");
  return *found;
}

void PassCursor::require_next(sharding::Action action, int unit) const {
  require_under_way();
  if (inside_) require_outside(text({.action = action, .index = unit}));
  const sharding::Task found = require_next();
  if (found.action != action || found.index != unit)
    throw LogicError(message("pass: the next computation is ", text(found), " of micro-batch ", found.micro_batch,
                             ", not ", text({.action = action, .index = unit})));
  if (makes_step_ && !module_.step_piece(found.micro_batch))
    throw LogicError(message("pass: of the step's ", module_.step_pieces(),
                             " pieces this rank has none in micro-batch ", found.micro_batch,
                             " (ShardedModule::step_piece); call skip"));
}

void PassCursor::begin_use() {
  inside_ = true;
  computed_ = task().micro_batch;
  arrived_ = !reads(task());
}

bool PassCursor::must_wait_for_weights() { return !std::exchange(arrived_, true); }

int PassCursor::skip() {
  require_outside("skip");
  const int micro_batch = require_next().micro_batch;
  require(computed_ != micro_batch, "pass: micro-batch ", micro_batch,
          " is skipped, and some of it was computed already; forfeit the pass");
  require(!makes_step_ || module_.step_pieces() == 0 || !module_.step_piece(micro_batch), "pass: micro-batch ",
          micro_batch, " is skipped, and this rank has a piece of the step to compute in it");
  return skipped_ = micro_batch;
}

void PassCursor::forfeit() {
  require_under_way();
  inside_ = false;
  forfeited_ = true;
  if (makes_step_) module_.progress().forfeited = true;
}

void UseCheck::weights() const {
  require(under_way(), "use: a weight is asked for after the end of the use");
  if (!cursor_->reads(task_))
    throw LogicError(message("use: ", cursor_->text(task_), " was declared to need no weights; set the unit's ",
                             "backward_needs_weights"));
}

void UseCheck::gradients() const {
  require(under_way(), "use: a gradient is asked for after the end of the use");
  if (cursor_->kind_ != sharding::Pass::train || task_.action == sharding::Action::forward)
    throw LogicError(
        message("use: ", cursor_->text(task_), " makes no gradient in a pass of ", sharding::name_of(cursor_->kind_)));
}

std::size_t UseCheck::tensors() const { return cursor_->module_.references(task_.index).size(); }

void UseCheck::index(std::size_t index) const {
  if (index >= tensors())
    throw LogicError(message("use: tensor ", static_cast<std::ptrdiff_t>(index), " is asked for, and ",
                             cursor_->name_of(task_.index), " has ", tensors(), ", counted from 0"));
}

void UseCheck::count(std::size_t fields) const {
  if (fields != tensors())
    throw LogicError(message("use: a struct of ", fields, " fields for ", cursor_->name_of(task_.index), ", which has ",
                             tensors(), " tensors"));
}

std::size_t UseCheck::index_of(std::string_view name) const {
  require(under_way(), "use: '", name, "' is asked for after the end of the use");
  const std::vector<Reference>& references = cursor_->module_.references(task_.index);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < references.size(); ++i)
    if (references[i].present() && cursor_->module_.parameter(references[i]).name == name) return i;
  for (const Reference& reference : references)
    if (reference.present()) names.push_back(cursor_->module_.parameter(reference).name);
  throw LogicError(message("use: ", cursor_->name_of(task_.index), " has no tensor '", name, "'; ",
                           names.empty() ? "it has none" : suggestion(name, names)));
}

}  // namespace fsdp
