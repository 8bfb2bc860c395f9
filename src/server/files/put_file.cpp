#include "server/files/files.hpp"

#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include <shared_tensor/value.hpp>

#include "net/message/text.hpp"
#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "server/methods/rejected.hpp"
#include "server/rpc/content_coding.hpp"
#include "server/rpc/reply.hpp"
#include "tensor/files/tensor_file.hpp"

namespace shared_tensor::server {

using json_rpc::Json;
using runtime::TensorStore;
using runtime::Upload;
using runtime::UploadTable;

namespace {

/// How long a request waits for an upload that is opening or being published.
constexpr std::chrono::seconds kPatience{30};

Json gaps(const std::vector<NumberRange>& missing) {
    Json list = Json::array();
    for (const auto& [first, end] : missing)
        list.push_back({first, end - 1});
    return list;
}

std::string gaps_text(const std::vector<NumberRange>& missing) {
    std::string text;
    for (const auto& [first, end] : missing)
        text.append(text.empty() ? "" : ", ").append(std::to_string(first)).append("-").append(std::to_string(end - 1));
    return text;
}

net::Response json_answer(int status, const Json& json) {
    std::string text;
    json_rpc::print_json(json, text);
    return net::Response::json(status, std::move(text));
}

net::Response store_rejection(const TensorStore::Rejected& rejected, const UploadRequest& wanted) {
    if (!rejected.conflict && !rejected.is_low) return error_response(507, json_rpc::out_of_memory(rejected.reason));
    return error_response(412, version_error(rejected, wanted.version, wanted.changes));
}

/// Throws Rejected if the request has a digest that is not the digest of its body.
void check_digest(const net::Headers& headers, std::span<const std::byte> body) {
    const auto field = net::parse_digest_field(headers.find("Content-Digest"));
    if (!field.is_there) return;
    if (!field.value) reject("Content-Digest", "xxh3-128=:BASE64 of 16 bytes:", "another value");
    if (const auto real = Digest::of(body); real != *field.value)
        reject("Content-Digest", net::digest_field(real) + ", the digest of the bytes that came",
               net::digest_field(*field.value));
}

/// If the file contains one tensor with the name of the upload (as GET sends it), the content is this tensor and not a
/// set.
void single_out(tensor::FileContent& content, const std::string& name) {
    if (content.tensor != nullptr || content.set.manifest.size() != 1) return;
    const auto& [member, place] = *content.set.manifest.begin();
    if (member == name) content.tensor = tensor::member_of(content.set, place);
}

net::Response answer_done(const std::string& name, std::uint64_t size, std::uint64_t version, bool is_new = false) {
    return json_answer(is_new ? 201 : 200, {{"name", name}, {"version", version}, {"bytes", size}});
}

net::Response unknown(Services& all) { return error_response(404, json_rpc::unknown_or_expired("upload", all.epoch)); }

/// Returns the error for a PUT that must be rejected whatever its body holds; nothing if it may go on.
std::optional<net::Response> rejection(Services& all, const UploadRequest& wanted) {
    if (const auto known = wanted.key.id.empty() ? nullptr : all.uploads.find(wanted.key);
        known != nullptr && known->is_published() && known->form() == wanted.form)
        return std::nullopt;  // a repeated part of a published upload changes nothing, whatever happened to the name
    if (all.names.store().closed()) return error_response(503, json_rpc::shutting_down());
    if (auto rejected =
            all.names.store().rejection(wanted.key.owner, wanted.key.name, wanted.form.size, wanted.version))
        return store_rejection(*rejected, wanted);
    return std::nullopt;
}

/// Returns the answer if the upload is not open; nothing if it is open. Waits while it is opening or being published.
std::optional<net::Response> settle(const UploadRequest& wanted, const Upload& upload) {
    switch (upload.settled(real_clock().now() + kPatience)) {
        case Upload::Phase::open: return std::nullopt;
        case Upload::Phase::published:
            return answer_done(wanted.key.name, upload.form().size, upload.progress().version);
        case Upload::Phase::opening:
        case Upload::Phase::publishing:
        case Upload::Phase::dropped: break;
    }
    return busy_response();
}

net::Response answer_part(const UploadRequest& wanted, const Upload& upload) {
    const auto progress = upload.progress();
    if (progress.phase != Upload::Phase::open) {  // the part of another request was the last one
        if (auto answer = settle(wanted, upload)) return std::move(*answer);
    }
    return json_answer(202, {{"name", wanted.key.name},
                             {"size", upload.form().size},
                             {"received", progress.received},
                             {"missing", gaps(progress.missing)}});
}

net::Response publish(Services& all, const UploadRequest& wanted, const UploadTable::UploadPointer& upload) {
    const tensor::Block block = upload->block();
    const std::uint64_t size = upload->form().size;
    tensor::FileContent content = tensor::view_file(block, size, *wanted.file_form, wanted.raw);
    NamedTensors::check_content("body", content.set.manifest, {content.metadata.begin(), content.metadata.end()});
    if (!wanted.changes && !wanted.is_set) single_out(content, wanted.key.name);
    auto placed = all.names.adopt(wanted.key.owner, std::move(content), size);
    const auto old = all.names.store().find(wanted.key.owner, wanted.key.name);
    const bool is_new = old == nullptr;
    if (wanted.changes) placed = all.names.with_changes(wanted.key.owner, old, std::move(placed));
    auto made = all.names.publish(wanted.key.owner, wanted.key.name, std::move(placed.value), wanted.version);
    if (const auto* rejected = std::get_if<TensorStore::Rejected>(&made)) {
        upload->drop();
        all.uploads.remove(wanted.key, upload);
        return store_rejection(*rejected, wanted);
    }
    const std::uint64_t version = std::get<runtime::NamedPointer>(made)->version;
    all.uploads.published(wanted.key, upload, version);
    return answer_done(wanted.key.name, size, version, is_new);
}

net::Response put(Services& all, const net::RequestHead& head, const Principal& principal,
                  std::span<const std::byte> bytes) {
    const UploadRequest wanted = parse_put(head, principal, bytes.size());
    if (auto rejected = rejection(all, wanted)) return std::move(*rejected);
    const bool stands_alone = wanted.is_whole && wanted.key.id.empty();
    const auto memory = all.names.block_for(wanted.key.owner);
    auto opened = stands_alone ? all.uploads.make(wanted.form, wanted.payer, memory)
                               : all.uploads.open(wanted.key, wanted.form, wanted.payer, memory);
    if (const auto* full = std::get_if<UploadTable::Full>(&opened)) {
        if (!full->for_ever) return busy_response(full->reason);
        return error_response(413, json_rpc::invalid_params("size", full->reason, std::to_string(wanted.form.size)));
    }
    const auto upload = std::get<UploadTable::UploadPointer>(opened);
    if (upload->form() != wanted.form)
        return error_response(
            409, json_rpc::invalid_params("Content-Range",
                                          "a part of the upload that is under way (" + upload->form().form + ", " +
                                              std::to_string(upload->form().size) + " bytes), or another ?upload=ID",
                                          wanted.form.form + ", " + std::to_string(wanted.form.size) + " bytes"));
    if (auto answer = settle(wanted, *upload)) return std::move(*answer);
    auto taken = Upload::Taken::more;
    try {
        taken = upload->take(wanted.part.first, bytes, all.uploads.now());
        if (taken == Upload::Taken::all) return publish(all, wanted, upload);
    } catch (...) {
        if (taken == Upload::Taken::all) upload->drop();
        all.uploads.remove(wanted.key, upload);
        throw;
    }
    if (taken == Upload::Taken::more) return answer_part(wanted, *upload);
    reject("Content-Range", "a part next to bytes that the upload has: it consists of 10000 ranges already",
           net::content_range(wanted.part, wanted.form.size));
}

}  // namespace

std::optional<net::Response> reject_put(Services& all, const net::RequestHead& head, const Principal& principal) try {
    const auto length = head.headers.find("Content-Length");
    auto bytes = length ? net::parse_decimal(*length) : std::nullopt;
    if (known_coding(head.headers) != Coding::none) bytes.reset();  // the size after decompression is not known
    if (!bytes) {
        (void)parse_upload_request(head, principal);
        return std::nullopt;
    }
    return rejection(all, parse_put(head, principal, *bytes));
} catch (const Rejected& rejected) {
    return error_response(rejected);
}

std::shared_ptr<const void> part_begins(Services& all, const net::RequestHead& head, const Principal& principal) {
    if (!head.headers.find("Content-Range")) return nullptr;
    return all.uploads.part_begins(parse_upload_request(head, principal).key);
}

net::Response put_file(Services& all, const net::Request& request, const Principal& principal) try {
    const net::RequestHead& head = request.head;
    const auto bytes = request.body != nullptr ? request.body->bytes() : std::span<const std::byte>();
    check_digest(head.headers, bytes);
    const Coding coding = known_coding(head.headers);
    if (coding == Coding::none) return put(all, head, principal, bytes);
    const std::size_t max_bytes = all.options.http.max_body_bytes;
    const auto range = net::parse_content_range(head.headers.find("Content-Range").value_or(""));
    const std::uint64_t most = range ? std::min<std::uint64_t>(range->part.count, max_bytes) : max_bytes;
    if (range) {  // rejected before it is decompressed
        if (auto rejected = rejection(all, parse_put(head, principal, range->part.count))) return std::move(*rejected);
    }
    const Decoded plain = decoded(request, coding, static_cast<std::size_t>(most), all.transports.compression(),
                                  [&](std::size_t count) { return all.hold(principal, count); });
    return put(all, head, principal, plain.bytes);
} catch (const tensor::SafetensorsError& error) {
    return error_response(400, json_rpc::invalid_params("body", "a safetensors file", error.what()));
} catch (const tensor::NpyError& error) {
    return error_response(400, json_rpc::invalid_params("body", "a .npy file", error.what()));
} catch (const InvalidValue& error) {
    return error_response(400, json_rpc::invalid_params(error.path, error.expected, error.got));
} catch (const NotStored& error) {
    return error_response(507, json_rpc::out_of_memory(error.what()));
} catch (const std::bad_alloc&) {
    return error_response(
        507, json_rpc::out_of_memory("there is no memory for the file: remove tensors, or come back later"));
} catch (const std::system_error& error) {
    return error_response(
        507, json_rpc::out_of_memory(std::string("there is no shared memory for the file: ") + error.what()));
}

net::Response upload_state(Services& all, const net::RequestHead& head, const Principal& principal) {
    const auto upload = all.uploads.find(parse_upload_request(head, principal).key);
    if (upload == nullptr) return unknown(all);
    const auto phase = upload->settled(real_clock().now() + kPatience);
    if (phase == Upload::Phase::dropped) return unknown(all);
    if (phase != Upload::Phase::open && phase != Upload::Phase::published) return busy_response();
    const auto progress = upload->progress();
    net::Response response;
    response.headers.add("Shared-Tensor-Upload",
                         std::to_string(progress.received) + "/" + std::to_string(upload->form().size));
    if (progress.phase == Upload::Phase::published) {
        response.headers.add("Shared-Tensor-Version", std::to_string(progress.version));
    } else {
        response.headers.add("Shared-Tensor-Missing", gaps_text(progress.missing));
    }
    return response;
}

net::Response abandon_upload(Services& all, const net::RequestHead& head, const Principal& principal) {
    const UploadRequest wanted = parse_upload_request(head, principal);
    const auto upload = all.uploads.find(wanted.key);
    if (upload == nullptr) return unknown(all);
    if (settle(wanted, *upload) || !all.uploads.remove(wanted.key, upload))
        return unknown(all);  // it has already ended
    net::Response response;
    response.status = 204;
    return response;
}

}  // namespace shared_tensor::server
