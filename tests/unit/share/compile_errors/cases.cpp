// Each part must be rejected by the compiler in the words of its first line, or be taken if these are "nothing".

#include <vector>

#include <shared_tensor/registry.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/struct.hpp>

#if defined(CASE_share)
// expect: nothing
double add(double a, double b) { return a + b; }
SHARE(add, arg("a"), arg("b") = 1.0);
#elif defined(CASE_context_named)
// expect: SHARE: name all parameters with arg(
double same(shared_tensor::Context&, double a) { return a; }
SHARE(same, arg("context"), arg("a"));
#elif defined(CASE_context_second)
// expect: SHARE: Context& must be the first parameter
int late(int x, shared_tensor::Context&) { return x; }
SHARE(late);
#elif defined(CASE_default_of_other_type)
// expect: SHARE: the default in arg(
int same(int a) { return a; }
SHARE(same, arg("a") = "text");
#elif defined(CASE_default_size_for_list)
// expect: SHARE: the default in arg(
std::vector<int> same(std::vector<int> a) { return a; }
SHARE(same, arg("a") = 3);
#elif defined(CASE_default_text_for_flag)
// expect: SHARE: the default in arg(
bool same(bool a) { return a; }
SHARE(same, arg("a") = "no");
#elif defined(CASE_default_with_fraction)
// expect: SHARE: the default in arg(
int same(int a) { return a; }
SHARE(same, arg("a") = 2.5);
#elif defined(CASE_enum_elsewhere)
// expect: SHARED_TENSOR_ENUM(shop::Mode, ...) stands in the wrong place: move it into the namespace in which shop::Mode
// is
namespace shop {
enum class Mode { fast, exact };
int speed(Mode mode) { return mode == Mode::fast ? 2 : 1; }
}  // namespace shop
SHARED_TENSOR_ENUM(shop::Mode, fast, exact);
SHARE(shop::speed, arg("mode"));
#elif defined(CASE_fields_elsewhere)
// expect: SHARED_TENSOR_FIELDS(shop::Box, ...) stands in the wrong place: move it into the namespace in which shop::Box
// is
namespace shop {
struct Box {
    float x, y;
};
float area(const Box& box) { return box.x * box.y; }
}  // namespace shop
SHARED_TENSOR_FIELDS(shop::Box, x, y);
SHARE(shop::area, arg("box"));
#elif defined(CASE_fields_in_place)
// expect: nothing
namespace shop {
struct Box {
    float x, y;
};
SHARED_TENSOR_FIELDS(Box, x, y);
enum class Mode { fast, exact };
SHARED_TENSOR_ENUM(Mode, fast, exact);
float area(const Box& box, Mode) { return box.x * box.y; }
SHARE(area, arg("box"), arg("mode"));
}  // namespace shop
#elif defined(CASE_generic_lambda)
// expect: SHARE: this cannot be called in exactly one way: name the parameter types (no auto, no overloads)
void add(shared_tensor::Registry& registry) {
    registry.add("same", [](auto x) { return x; });
}
#elif defined(CASE_mutable_lambda)
// expect: SHARE: several threads call it at once, so it must be callable as const: no mutable lambda
void add(shared_tensor::Registry& registry) {
    registry.add("count", [n = 0]() mutable { return ++n; });
}
#elif defined(CASE_names_missing)
// expect: SHARE: name all parameters with arg(
double add(double a, double b) { return a + b; }
SHARE(add, arg("a"));
#elif defined(CASE_names_too_many)
// expect: SHARE: name all parameters with arg(
double same(double a) { return a; }
SHARE(same, arg("a"), arg("b"));
#elif defined(CASE_pointer_parameter)
// expect: SHARE: a pointer cannot cross a process boundary: take the value, std::vector, Bytes or at::Tensor
int first(const int* numbers) { return *numbers; }
SHARE(first);
#elif defined(CASE_pointer_result)
// expect: SHARE: a function that returns a pointer cannot be shared: return the value
const char* name() { return "x"; }
SHARE(name);
#elif defined(CASE_reference_parameter)
// expect: SHARE: a non-const reference parameter cannot be shared: return the result instead (Context& goes first)
void increase(int& number) { ++number; }
SHARE(increase);
#elif defined(CASE_tensor_without_header)
// expect: for at::Tensor include <shared_tensor/torch.hpp>
namespace at {
class Tensor;
}
int rank(const at::Tensor&) { return 0; }
SHARE(rank);
#elif defined(CASE_unknown_parameter)
// expect: SHARE: no Codec for this parameter type: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM
struct Mystery {};
int solve(const Mystery&) { return 42; }
SHARE(solve);
#elif defined(CASE_unknown_result)
// expect: SHARE: no Codec for the result type: use SHARED_TENSOR_FIELDS / SHARED_TENSOR_ENUM
struct Mystery {};
Mystery find() { return {}; }
SHARE(find);
#endif
