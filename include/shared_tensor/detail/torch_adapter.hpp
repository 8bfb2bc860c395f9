#pragma once

// What <shared_tensor/torch.hpp> declares. Who links CMake's target shared_tensor::torch does not compile this header:
// the target does it once.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/detail/stream_order.hpp>
#include <shared_tensor/torch.hpp>

namespace shared_tensor {

namespace detail {

/// In the order of DType.
inline constexpr std::array<at::ScalarType, kDTypes> kScalarTypes{
    at::ScalarType::Bool,           at::ScalarType::Byte,
    at::ScalarType::UInt16,         at::ScalarType::UInt32,
    at::ScalarType::UInt64,         at::ScalarType::Char,
    at::ScalarType::Short,          at::ScalarType::Int,
    at::ScalarType::Long,           at::ScalarType::Half,
    at::ScalarType::BFloat16,       at::ScalarType::Float,
    at::ScalarType::Double,         at::ScalarType::ComplexHalf,
    at::ScalarType::ComplexFloat,   at::ScalarType::ComplexDouble,
    at::ScalarType::Float8_e4m3fn,  at::ScalarType::Float8_e4m3fnuz,
    at::ScalarType::Float8_e5m2,    at::ScalarType::Float8_e5m2fnuz,
    at::ScalarType::Float8_e8m0fnu, at::ScalarType::Float4_e2m1fn_x2,
};

}  // namespace detail

SHARED_TENSOR_DETAIL_TORCH at::ScalarType scalar_type(DType dtype) {
    return detail::kScalarTypes[static_cast<std::size_t>(dtype)];
}

SHARED_TENSOR_DETAIL_TORCH std::optional<DType> dtype_of(at::ScalarType type) {
    const auto* const found = std::find(detail::kScalarTypes.begin(), detail::kScalarTypes.end(), type);
    if (found == detail::kScalarTypes.end()) return std::nullopt;
    return static_cast<DType>(found - detail::kScalarTypes.begin());
}

namespace detail {

/// Returns the reason why a tensor can't cross and what to do about it; empty if it can cross.
inline std::string rejection(const at::Tensor& tensor) {
    if (!tensor.defined()) return "an undefined tensor (return std::optional<at::Tensor> for none)";
    if (tensor.is_nested()) return "a nested tensor (call to_padded_tensor() first)";
    if (tensor.is_quantized()) return "a quantised tensor (call dequantize() first)";
    if (tensor.layout() != at::kStrided) return "a sparse tensor (call to_dense() first)";
    if (tensor.is_meta()) return "a meta tensor, which has no values";
    if (!dtype_of(tensor.scalar_type())) return std::string("a tensor of dtype ") + c10::toString(tensor.scalar_type());
    if (!tensor.has_storage()) return "a tensor without memory of its own (make a plain copy of it first)";
    return {};
}

/// Orders two streams: later work of `after` starts when all earlier work of `before` is done. Does not block.
inline void order(const c10::Stream& before, const c10::Stream& after) {
    if (before == after) return;
    c10::Event event(before.device_type());
    event.record(before);
    event.block(after);
}

/// This thread's current stream on `device`. Throws std::runtime_error while the stream records a CUDA graph: its work
/// runs later, and no other stream can wait for it.
inline c10::Stream stream_of(c10::Device device) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    if (is_capturing(stream.native_handle()))
        throw std::runtime_error(
            "a tensor cannot cross while its thread records a CUDA graph: send it before, or after");
    return stream;
}
inline c10::Stream default_stream_of(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getDefaultStream(device);
}
inline c10::Device torch_device(Device device) {
    if (device.kind == Device::Kind::cpu) return c10::Device(c10::DeviceType::CPU);
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.index)};
}

/// Loads libtorch_cuda, without which operators cannot use CUDA tensors. Returns null, or the reason why it cannot be
/// loaded. The first call takes seconds.
inline const char* load_torch_cuda() noexcept {
    static const std::string kWhyNot = [] {
        if (::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return std::string();
        Dl_info torch{};
        if (::dladdr(reinterpret_cast<const void*>(&at::set_num_threads), &torch) != 0) {
            const std::string path = torch.dli_fname;
            const std::string beside = path.substr(0, path.rfind('/') + 1) + "libtorch_cuda.so";
            if (::dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return std::string();
        }
        if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return std::string();
        const char* const why = ::dlerror();
        return std::string("libtorch_cuda cannot be loaded: ") + (why != nullptr ? why : "no reason given");
    }();
    return kWhyNot.empty() ? nullptr : kWhyNot.c_str();
}
inline void need_torch_cuda() {
    if (const char* const why = load_torch_cuda())
        throw std::runtime_error(std::string("a tensor lies on a GPU: ") + why);
}

/// Owns the memory of an at::Tensor that was made from a TensorRef.
struct View {
    TensorRef ref;
    std::optional<c10::Stream> stream;  ///< on a GPU: the current stream of the thread that made the view
};
/// Deletes a View. The device's default stream then waits for the earlier work of two streams: the stream of the thread
/// that made the view, and the stream of the thread that ends it. A program that uses the tensor on a third stream must
/// order that stream itself: Tensor::record_stream() only works for memory of torch's own allocator.
inline void end_of_view(void* context) {
    const std::unique_ptr<View> view(static_cast<View*>(context));
    if (!view->stream) return;
    try {
        const c10::Device device = view->stream->device();
        if (!is_capturing(view->stream->native_handle())) order(*view->stream, default_stream_of(device));
        if (const c10::Stream here = stream_of(device); here != *view->stream) order(here, default_stream_of(device));
    } catch (const std::exception&) {  // this thread records a graph, the process ends, or the device has failed
    }
}
/// The TensorRef that `tensor` was made from; null if it was not made from a TensorRef.
inline const TensorRef* viewed_by(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return nullptr;
    const auto* const view = tensor.storage().data_ptr().cast_context<View>(&end_of_view);
    return view == nullptr ? nullptr : &view->ref;
}

/// Whether the at::Tensor that a TensorRef owns is the only tensor on its memory.
inline bool is_only_tensor(const void* owner) {
    const auto& tensor = *static_cast<const at::Tensor*>(owner);
    return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

inline std::vector<std::int64_t> counts(at::IntArrayRef list) { return list.vec(); }
inline at::IntArrayRef counts(std::span<const std::int64_t> list) { return {list.data(), list.size()}; }

}  // namespace detail

SHARED_TENSOR_DETAIL_TORCH TensorRef TensorAdapter<at::Tensor>::to_ref(const at::Tensor& tensor) {
    if (std::string what = detail::rejection(tensor); !what.empty())
        throw InvalidValue({}, "dense tensor", std::move(what));
    at::Tensor plain = tensor.requires_grad() ? tensor.detach() : tensor;
    if (plain.is_conj()) plain = plain.resolve_conj();
    if (plain.is_neg()) plain = plain.resolve_neg();
    if (!plain.is_cpu() && !plain.is_cuda()) plain = plain.cpu();
    Device device;
    if (plain.is_cuda()) {
        device = {Device::Kind::cuda, plain.get_device()};
        detail::order(detail::stream_of(plain.device()), detail::default_stream_of(plain.device()));
    }
    const DType dtype = *dtype_of(plain.scalar_type());
    const void* first = plain.numel() > 0 ? plain.const_data_ptr() : plain.storage().data();
    auto* const data = const_cast<void*>(first);  // NOLINT(*-const-cast)
    auto sizes = detail::counts(plain.sizes()), strides = detail::counts(plain.strides());
    // A tensor that was made from a TensorRef refers to the same memory owner, so that no chain of owners grows.
    if (const TensorRef* viewed = detail::viewed_by(plain)) {
        const bool same = data == viewed->data() && dtype == viewed->dtype() &&
                          std::ranges::equal(sizes, viewed->shape()) && std::ranges::equal(strides, viewed->strides());
        return same ? *viewed : viewed->view(data, dtype, std::move(sizes), std::move(strides));
    }
    return TensorRef(data, dtype, std::move(sizes), std::move(strides), device,
                     std::make_shared<const at::Tensor>(std::move(plain)), &detail::is_only_tensor);
}

SHARED_TENSOR_DETAIL_TORCH at::Tensor TensorAdapter<at::Tensor>::from_ref(const TensorRef& ref) {
    const c10::Device device = detail::torch_device(ref.device());
    auto key = c10::DispatchKey::CPU;
    std::optional<c10::Stream> stream;
    if (device.is_cuda()) {
        detail::need_torch_cuda();
        key = c10::DispatchKey::CUDA;
        stream = detail::stream_of(device);
        detail::order(detail::default_stream_of(device), *stream);
    }
    // Does the same as at::for_blob, in a fifth of the time.
    auto context = std::make_unique<detail::View>(detail::View{ref, stream});
    c10::DataPtr memory(ref.mutable_data(), context.get(), &detail::end_of_view, device);
    static_cast<void>(context.release());
    constexpr bool kResizable = false;
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                         static_cast<std::size_t>(ref.reach()), std::move(memory),
                                                         nullptr, kResizable);
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), c10::DispatchKeySet(key),
                                                           caffe2::TypeMeta::fromScalarType(scalar_type(ref.dtype())));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(detail::counts(ref.shape()), detail::counts(ref.strides()));
    return tensor;
}

SHARED_TENSOR_DETAIL_TORCH at::Tensor TensorAdapter<at::Tensor>::placed(const TensorRef& ref,
                                                                        const Placement& placement) {
    at::Tensor tensor = from_ref(ref);
    at::TensorOptions wanted = tensor.options();
    if (!placement.device.empty()) {
        wanted = wanted.device(c10::Device(std::string(placement.device)));
        if (wanted.device().is_cuda()) detail::need_torch_cuda();
    }
    if (const auto dtype = parse_dtype(placement.dtype); dtype && tensor.is_floating_point())
        wanted = wanted.dtype(scalar_type(*dtype));
    if (wanted.device() == tensor.device() && wanted.dtype() == tensor.dtype()) return tensor;
    return tensor.to(wanted);
}

SHARED_TENSOR_DETAIL_TORCH DType DTypeAdapter<at::ScalarType>::to_dtype(at::ScalarType type) {
    const auto dtype = dtype_of(type);
    if (!dtype) throw InvalidValue({}, "a dtype that can cross", c10::toString(type));
    return *dtype;
}

SHARED_TENSOR_DETAIL_TORCH NamedReference ref(const at::Tensor& result) {
    const TensorRef* viewed = result.defined() ? detail::viewed_by(result) : nullptr;
    const bool as_it_came =
        viewed != nullptr && result.const_data_ptr() == viewed->data() &&
        result.scalar_type() == scalar_type(viewed->dtype()) && result.sizes() == detail::counts(viewed->shape()) &&
        result.strides() == detail::counts(viewed->strides()) && !result.is_conj() && !result.is_neg();
    return ref(as_it_came ? *viewed : TensorRef());
}

namespace detail {

/// The SharedMemoryScopes that live on this thread, innermost last.
[[gnu::visibility("hidden")]] inline thread_local std::vector<SharedMemory> allocation_scopes;

inline void end_of_shared_block(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

/// Takes memory from libtorch's CPU allocator, or from the call's shared memory on a thread with a
/// SharedMemoryScope.
class [[gnu::visibility("hidden")]] ScopedAllocator final : public c10::Allocator {
public:
    /// Makes this allocator libtorch's CPU allocator. It is never destroyed, because any tensor's storage may point to
    /// it.
    static void install() {
        static auto* const kInstalled = [] {
            auto* made = new ScopedAllocator(*c10::GetAllocator(c10::DeviceType::CPU));
            c10::SetAllocator(c10::DeviceType::CPU, made, UINT8_MAX);
            return made;
        }();
        static_cast<void>(kInstalled);
    }

    c10::DataPtr allocate(std::size_t bytes) override {
        if (!allocation_scopes.empty() && bytes >= kMinBytes) {
            if (auto block = allocation_scopes.back().block(bytes); block.data != nullptr) {
                auto owner = std::make_unique<std::shared_ptr<const void>>(std::move(block.owner));
                return {block.data, owner.release(), &end_of_shared_block, c10::Device(c10::DeviceType::CPU)};
            }
        }
        return ordinary_->allocate(bytes);
    }
    bool is_simple_data_ptr(const c10::DataPtr& data) const override { return ordinary_->is_simple_data_ptr(data); }
    /// Null, because memory of a scope has another deleter than ordinary memory.
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

private:
    /// For fewer bytes, a lease and a mapping cost more than a copy.
    static constexpr std::size_t kMinBytes = 32 << 10;

    explicit ScopedAllocator(c10::Allocator & ordinary) : ordinary_(&ordinary) {}
    c10::Allocator* const ordinary_;
};

SHARED_TENSOR_DETAIL_TORCH constexpr Framework kTorch {
    "torch",
#if defined(SHARED_TENSOR_TORCH_VERSION)
        SHARED_TENSOR_TORCH_VERSION,
#else
        "",
#endif
        [](std::size_t threads) {
            at::set_num_threads(static_cast<int>(threads));
            ScopedAllocator::install();
        },
        []() -> std::shared_ptr<void> { return std::make_shared<at::NoGradGuard>(); }, &load_torch_cuda,
        [] { c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache(); },
};

}  // namespace detail

SHARED_TENSOR_DETAIL_TORCH SharedMemoryScope::SharedMemoryScope() {
    detail::allocation_scopes.push_back(detail::SharedMemory::of_call());
}
SHARED_TENSOR_DETAIL_TORCH SharedMemoryScope::~SharedMemoryScope() { detail::allocation_scopes.pop_back(); }

}  // namespace shared_tensor
