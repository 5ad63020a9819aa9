// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <algorithm>

#include "builtins.hpp"

namespace fsdp::text::jinja {

Runner::Runner(const Value& variables, const std::tm& clock) : clock_(clock) {
  for (const auto& [name, value] : variables.as_dict()->items) scope_->values[*name.as_text()] = value;
  scope_ = std::make_shared<Scope>(Scope{.outer = scope_});
}

Runner::~Runner() {
  for (const std::shared_ptr<Namespace>& members : namespaces_) members->members.items.clear();
}

void Runner::print(const std::string& text) {
  spend(text.size() / 16);
  if (out_.size() + text.size() > most_text) refuse("the text becomes longer than ", most_text, " bytes");
  out_ += text;
}

Value Runner::make_namespace(Dict members) {
  namespaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(members)}));
  return namespaces_.back();
}

Value Runner::evaluate(const Expression& expression) {  // NOLINT(misc-no-recursion): as deep as the template
  return counted(expression.line, expression.value);
}

CallArguments Runner::evaluate_all(const Arguments& arguments) {  // NOLINT(misc-no-recursion)
  CallArguments values;
  const std::size_t unnamed = arguments.values.size() - arguments.names.size();
  for (std::size_t i = 0; i < arguments.values.size(); ++i) {
    Value value = evaluate(*arguments.values[i]);
    if (i < unnamed)
      values.positional.push_back(std::move(value));
    else
      values.named.emplace_back(arguments.names[i - unnamed], std::move(value));
  }
  return values;
}

Value Runner::value_of(const std::string& name) const {
  std::size_t looked_at = 0;
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (++looked_at % 8 == 0) spend(1);
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return found->second;
  }
  const std::optional<Value> known = global(name);
  return known ? *known : Value(Undefined{name});
}

Value Runner::call(const Value& function, const CallArguments& arguments) {
  const auto* known = function.get<std::shared_ptr<const Function>>();
  if (known == nullptr) refuse(function.kind_name(), " cannot be called");
  const std::shared_ptr<const Function> held = *known;
  return held->call(*this, arguments);
}

// ---- Statements ---------------------------------------------------------------------------------------------------

Flow Runner::run_body(const Body& body) {  // NOLINT(misc-no-recursion)
  for (const Statement& statement : body) {
    const Flow flow = counted(statement.line, statement.run);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Flow Runner::run_loop(const For& loop) {  // NOLINT(misc-no-recursion)
  std::vector<Value> items = items_of(evaluate(*loop.items));
  const std::shared_ptr<Scope> outer = scope_;
  const auto enter = [&] { scope_ = std::make_shared<Scope>(Scope{.outer = outer}); };
  if (loop.condition != nullptr) {
    std::erase_if(items, [&](const Value& item) {
      enter();
      assign(loop.target, item);
      return !evaluate(*loop.condition).truth();
    });
    scope_ = outer;
  }
  bool came_to_end = false;  // an iteration ran to its end: Jinja's condition for skipping `else`
  const Value listed = Value::list(std::move(items));
  const auto all = *listed.get<std::shared_ptr<const List>>();
  for (std::size_t i = 0; i < all->items.size(); ++i) {
    spend(1);
    enter();
    scope_->values["loop"] = std::make_shared<const Loop>(Loop{.items = all, .index = i});
    assign(loop.target, all->items[i]);
    const Flow flow = run_body(loop.body);
    came_to_end = came_to_end || flow == Flow::next;
    if (flow == Flow::leave) break;
  }
  enter();
  const Flow flow = came_to_end ? Flow::next : run_body(loop.otherwise);
  scope_ = outer;
  return flow;
}

Flow Runner::run_with(const With& block) {  // NOLINT(misc-no-recursion)
  const std::shared_ptr<Scope> outer = scope_;
  const auto inner = std::make_shared<Scope>(Scope{.outer = outer});
  for (const auto& [target, expression] : block.values) {
    const Value value = evaluate(*expression);  // does not see names that the same `with` sets
    scope_ = inner;
    assign(target, value);
    scope_ = outer;
  }
  scope_ = inner;
  const Flow flow = run_body(block.body);
  scope_ = outer;
  return flow;
}

void Runner::run_generation(const Body& body) {  // NOLINT(misc-no-recursion)
  const std::size_t begin = out_.size();
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::make_shared<Scope>(Scope{.outer = scope_}));
  run_body(body);
  scope_ = outer;
  generations_.push_back({begin, out_.size()});
}

std::string Runner::captured(const Body& body) {  // NOLINT(misc-no-recursion)
  std::string before = std::exchange(out_, {});
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::make_shared<Scope>(Scope{.outer = scope_}));
  run_body(body);
  scope_ = outer;
  return std::exchange(out_, std::move(before));
}

Value Runner::filtered(const Body& body, const std::vector<Filter>& filters) {  // NOLINT(misc-no-recursion)
  Value value = captured(body);
  for (const Filter& filter : filters) value = apply_filter(*this, filter.name, value, evaluate_all(filter.arguments));
  return value;
}

Value Runner::function_of(const std::shared_ptr<const Macro>& macro) {
  // A weak pointer, since the scope owns the macro. Calling a macro after its scope has ended is an error.
  return std::make_shared<const Function>(Function{
      macro->name, [macro, outer = std::weak_ptr<Scope>(scope_)](Runner& runner, const CallArguments& arguments) {
        const std::shared_ptr<Scope> scope = outer.lock();
        if (scope == nullptr) refuse("the macro ", macro->name, " is called behind the block that defines it");
        return runner.call_macro(*macro, scope, arguments);
      }});
}

Value Runner::call_macro(const Macro& macro, const std::shared_ptr<Scope>& outer,  // NOLINT(misc-no-recursion)
                         const CallArguments& arguments) {
  const auto& parameters = macro.parameters;
  if (arguments.positional.size() > parameters.size())
    refuse("the macro ", macro.name, " takes at most ", parameters.size(), " arguments");
  const std::shared_ptr<Scope> caller = std::exchange(scope_, std::make_shared<Scope>(Scope{.outer = outer}));
  spend(arguments.named.size() * parameters.size() / 16);
  for (const auto& given : arguments.named) {
    const std::string& name = given.first;
    const auto found =
        std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.first == name; });
    if (found == parameters.end() && name != "caller")
      refuse("the macro ", macro.name, " has no parameter '", name, "'");
    if (found - parameters.begin() < static_cast<std::ptrdiff_t>(arguments.positional.size()))
      refuse("the macro ", macro.name, " gets '", name, "' twice");
    scope_->values[name] = given.second;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, otherwise] = parameters[i];
    spend(4);
    const auto place = scope_->values.lower_bound(name);
    const bool is_set = place != scope_->values.end() && place->first == name;
    if (i < arguments.positional.size())
      scope_->values.insert_or_assign(place, name, arguments.positional[i]);
    else if (!is_set)
      scope_->values.emplace_hint(place, name, otherwise == nullptr ? Value(Undefined{name}) : evaluate(*otherwise));
  }
  std::string text = captured(macro.body);
  scope_ = caller;
  return text;
}

void Runner::assign(const Target& target, const Value& value) {  // NOLINT(misc-no-recursion)
  if (!target.parts.empty()) {
    const std::vector<Value> items = items_of(value);
    if (items.size() != target.parts.size()) refuse(target.parts.size(), " names are set to ", items.size(), " values");
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
  } else if (target.member.empty()) {
    scope_->values[target.name] = value;
  } else {
    const Value holder = value_of(target.name);
    const auto* members = holder.get<std::shared_ptr<Namespace>>();
    if (members == nullptr)
      refuse("'", target.name, ".", target.member, "' is set, and '", target.name, "' is no namespace");
    (*members)->members.set(target.member, value);
  }
}

}  // namespace fsdp::text::jinja
