// NamedTensors: pull() and push(), which transfer named tensors as files, in parallel ranges and parts.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "client/transfers/publication.hpp"
#include "client/transfers/transfer.hpp"
#include "net/message/text.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor {

namespace {

constexpr int kMostRawTries = 8;           // of a raw file and its metadata
constexpr const char* kUpload = "upload";  // Published::transport

bool is_about(const InvalidParams& error, std::string_view parameter) {
    return client::details_of(error).parameter == parameter;
}

std::string path_of(std::string_view name, std::string_view suffix, const PullOptions& options) {
    std::string path = "/tensors/" + net::percent_encode_path(name);
    path.append(suffix);
    char next = '?';
    if (options.version) {
        path.append("?version=").append(std::to_string(*options.version));
        next = '&';
    }
    if (options.part) {
        if (options.part->first.size() != options.part->size.size())
            throw std::invalid_argument("PullOptions::part: first and size have one number for each dimension");
        path.append(1, next).append("slice=");
        for (std::size_t i = 0; i < options.part->first.size(); ++i) {
            const std::int64_t first = options.part->first[i];
            path.append(i == 0 ? "" : ",").append(std::to_string(first)).append(":");
            path.append(std::to_string(first + options.part->size.at(i)));
        }
    } else if (options.first_row || options.last_row) {
        const auto text = [](const auto& row) { return row ? std::to_string(*row) : std::string(); };
        path.append(1, next)
            .append("slice=")
            .append(text(options.first_row))
            .append(":")
            .append(text(options.last_row));
    }
    return path;
}

/// Reads a raw file. Its header fields contain the shape ("[2,3]") and the dtype ("float32").
void read_raw(const client::Downloaded& file, const client::TensorPorts& ports, NamedTensor::Content& content) {
    const auto dtype = file.headers.find("Shared-Tensor-Dtype"), shape = file.headers.find("Shared-Tensor-Shape");
    auto sizes = nlohmann::json::parse(shape.value_or(""), nullptr, false);
    const nlohmann::json descriptor{{"dtype", std::string(dtype.value_or(""))},
                                    {"shape", std::move(sizes)},
                                    {"body", {{"offset", 0}, {"size", file.bytes->size()}}}};
    content.tensor = ports.incoming(file.bytes->bytes(), file.bytes, {})->import(descriptor);
}

void read_safetensors(const client::Downloaded& file, NamedTensor::Content& content) {
    auto read = tensor::view_safetensors({file.bytes->data(), file.bytes->size()}, file.bytes);
    content.metadata.insert(read.metadata.begin(), read.metadata.end());
    for (const auto& [name, place] : read.set.manifest)
        content.members.emplace_hint(content.members.end(), name, tensor::member_of(read.set, place));
    if (!file.headers.find("Shared-Tensor-Dtype")) return;  // a set
    if (content.members.size() != 1) throw tensor::SafetensorsError("it does not contain exactly one tensor");
    content.tensor = content.members.begin()->second;
    content.members.clear();
}

}  // namespace

NamedTensor NamedTensors::pull(std::string_view name, const PullOptions& options) const {
    client::Core& core = *client_.core_;
    const SteadyTime deadline = core.times_of(client_.options_).deadline;
    const auto within_rest = [&] {  // each step has what is left of the time of all
        CallOptions rest = client_.options_;
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - core.clock().now());
        if (rest.timeout) rest.timeout = std::max(left, std::chrono::milliseconds(0));
        return rest;
    };
    auto content = std::make_shared<NamedTensor::Content>();
    content->name = std::string(name);
    const auto fetch = [&](std::string_view suffix, const PullOptions& how) {
        client::Downloaded file = client::download(core, path_of(name, suffix, options), how, within_rest());
        content->version = net::parse_decimal(file.headers.find("Shared-Tensor-Version").value_or("")).value_or(0);
        return file;
    };
    try {
        read_safetensors(fetch(".safetensors", options), *content);
        return NamedTensor(std::move(content));
    } catch (const InvalidParams& error) {
        if (!is_about(error, "form")) throw;
    } catch (const InvalidValue& error) {
        throw ResultMismatch(error.path, error.expected, error.got);
    } catch (const tensor::SafetensorsError& error) {
        throw ResultMismatch("", "a safetensors file", error.what());
    }
    // It is of a dtype that safetensors lacks.
    PullOptions whole = options;
    whole.previous.reset();
    for (int tries = 1;; ++tries) {
        try {
            const client::Downloaded file = fetch(".raw", whole);
            content->metadata = NamedTensors(client_.with(within_rest())).fetch_metadata(name, content->version);
            read_raw(file, core.ports(), *content);
            return NamedTensor(std::move(content));
        } catch (const InvalidParams& error) {
            if (!is_about(error, "name")) throw;
            return NamedTensors(client_.with(within_rest())).get(name, options.version);  // a set
        } catch (const UnknownOrExpired&) {  // perhaps there is a new version meanwhile
            if (options.version || tries == kMostRawTries) throw;
        } catch (const InvalidValue& error) {
            throw ResultMismatch(error.path, error.expected, error.got);
        }
    }
}

namespace {

/// `file` must outlive the result.
client::UploadFile to_send(std::string_view name, const tensor::TensorFile& file, tensor::FileForm form,
                           const PushOptions& options) {
    client::UploadFile sent;
    sent.path = "/tensors/" + net::percent_encode_path(name);
    sent.path.append(tensor::suffix_of(form));
    auto add = [&, begin = '?'](const char* parameter, std::optional<std::uint64_t> value) mutable {
        if (value) sent.path.append(1, std::exchange(begin, '&')).append(parameter).append(std::to_string(*value));
    };
    add("if_version=", options.put.if_version);
    add("base=", options.put.base);
    add("version=", options.put.version);
    sent.parts.push_back({std::as_bytes(std::span(file.head)), {}});
    for (const tensor::ElementReader& one : file.elements)
        sent.parts.push_back({{one.data(), static_cast<std::size_t>(one.size())}, {}});
    sent.size = file.size;
    return sent;
}

template <class Make>
tensor::TensorFile as_file(Make make) {
    try {
        return make();
    } catch (const tensor::SafetensorsError& error) {
        throw InvalidValue("dtype", "one that safetensors has (a single tensor without metadata may have any)",
                           error.what());
    }
}

tensor::Metadata metadata_of(const PushOptions& options) {
    return {options.put.metadata.begin(), options.put.metadata.end()};
}

}  // namespace

Published NamedTensors::push(std::string_view name, const TensorRef& tensor, const PushOptions& options) const {
    codec::TensorPointer handle = tensor::make_handle(tensor);
    const bool is_copied = tensor::ElementReader(handle).data() == nullptr;
    if (is_copied) handle = tensor::copy_tensor(handle, tensor::plain_block);
    // Only safetensors has metadata, but it lacks some dtypes.
    const bool is_raw = options.put.metadata.empty();
    const auto file_form = is_raw ? tensor::FileForm::raw : tensor::FileForm::safetensors;
    const auto file =
        as_file([&] { return tensor::file_of(handle, file_form, std::string(name), metadata_of(options)); });
    client::UploadFile sent = to_send(name, file, file_form, options);
    if (is_raw) {
        sent.headers.add("Shared-Tensor-Dtype", std::string(name_of(handle->tensor().dtype())));
        sent.headers.add("Shared-Tensor-Shape", nlohmann::json(tensor::shape_of(handle)).dump());
    }
    const std::uint64_t version = client::upload(*client_.core_, sent, options, client_.options_);
    return {std::string(name), version, handle->bytes(), is_copied ? handle->bytes() : 0, kUpload};
}

namespace {

const tensor::TensorMap& members_in(const tensor::TensorMap& tensors) { return tensors; }
const tensor::Manifest& members_in(const tensor::TensorSet& set) { return set.manifest; }

/// `tensors`: a TensorMap or a TensorSet.
template <class Tensors>
Published push_as_file(client::Core& core, std::string_view name, const Tensors& tensors, std::uint64_t copied,
                       const PushOptions& options, const CallOptions& call) {
    const auto file = as_file([&] { return tensor::file_of(tensors, metadata_of(options)); });
    auto sent = to_send(name, file, tensor::FileForm::safetensors, options);
    const auto& members = members_in(tensors);
    const bool looks_single = members.size() == 1 && members.begin()->first == name && !options.put.base;
    if (looks_single)  // older servers know no `as`, and all other sets need none
        sent.path.append(sent.path.find('?') == std::string::npos ? "?as=set" : "&as=set");
    return {std::string(name), client::upload(core, sent, options, call), sent.size, copied, kUpload};
}

}  // namespace

Published NamedTensors::push_set(std::string_view name, const Members& members, const PushOptions& options) const {
    const auto tensors = by_name(members);
    if (tensor::is_plain(tensors)) return push_as_file(*client_.core_, name, tensors, 0, options, client_.options_);
    const auto set = tensor::gather_set(tensors, tensor::plain_block);
    return push_as_file(*client_.core_, name, set, set.data->bytes(), options, client_.options_);
}

Published NamedTensors::push_file(std::string_view name, const std::string& path, const PushOptions& options) const {
    const auto file = tensor::read_safetensors_file(path, tensor::plain_block);
    PushOptions all = options;
    all.put.metadata.insert(file.metadata.begin(), file.metadata.end());
    return push_as_file(*client_.core_, name, file.set, 0, all, client_.options_);
}

}  // namespace shared_tensor
