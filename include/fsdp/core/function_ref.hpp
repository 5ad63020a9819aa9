// SPDX-License-Identifier: Apache-2.0
/// @file
/// A non-owning, type-erased reference to a callable, as a parameter of functions that are not templates.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace fsdp {

template <class Signature>
class FunctionRef;

/// Refers to a callable of any type, which must outlive this object. Use it only as a function parameter.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& callable)
      : call_(call<std::remove_reference_t<F>>) {
    if constexpr (std::is_function_v<std::remove_reference_t<F>>)
      callable_ = reinterpret_cast<void*>(callable);
    else
      callable_ = const_cast<void*>(static_cast<const void*>(std::addressof(callable)));
  }

  R operator()(Args... args) const { return call_(callable_, std::forward<Args>(args)...); }

 private:
  template <class F>
  static R call(void* callable, Args... args) {
    if constexpr (std::is_function_v<F>)
      return reinterpret_cast<F*>(callable)(std::forward<Args>(args)...);
    else
      return (*static_cast<F*>(callable))(std::forward<Args>(args)...);
  }

  void* callable_;
  R (*call_)(void*, Args...);
};

}  // namespace fsdp
