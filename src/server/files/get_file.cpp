#include "server/files/files.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/bytes/field_list.hpp"
#include "base/bytes/ids.hpp"
#include "base/log/log.hpp"
#include "net/message/text.hpp"
#include "protocol/json_rpc/error.hpp"
#include "server/methods/rejected.hpp"
#include "server/rpc/content_coding.hpp"
#include "server/rpc/reply.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor::server {

using tensor::FileForm;
using tensor::TensorFile;

const char* media_type_of(FileForm form) {
    switch (form) {
        case FileForm::npy: return "application/x-npy";
        case FileForm::raw: return "application/octet-stream";
        case FileForm::safetensors: break;
    }
    return "application/vnd.safetensors";
}

std::optional<FileForm> form_of_type(std::string_view media_type) {
    for (const FileForm form : {FileForm::npy, FileForm::raw, FileForm::safetensors}) {
        if (net::same_token(media_type, media_type_of(form))) return form;
    }
    return std::nullopt;
}

namespace {

constexpr std::string_view kDelta = "xor-zstd";  ///< an instance manipulation (RFC 3229)

struct Rows {
    std::optional<std::int64_t> first, last;
};

std::optional<std::int64_t> parse_count(std::string_view text) {
    const auto number = net::parse_decimal(text);
    if (!number || *number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(*number);
}

/// For the first dimensions of a tensor.
std::vector<Rows> parse_rows(const std::string& text) {
    constexpr const char* kExpected =
        "first:last, rows of the first dimension, such as 0:16 or 16:; then those of "
        "further dimensions, after commas";
    std::vector<Rows> dimensions;
    for (std::string_view rest = text;;) {
        const std::string_view one = rest.substr(0, rest.find(','));
        const std::size_t colon = one.find(':');
        if (colon == std::string::npos) reject("slice", kExpected, text);
        const auto part = [&](std::string_view digits) {
            auto number = parse_count(digits);
            if (!number && !digits.empty()) reject("slice", kExpected, text);
            return number;
        };
        dimensions.push_back({part(one.substr(0, colon)), part(one.substr(colon + 1))});
        if (one.size() == rest.size()) return dimensions;
        rest.remove_prefix(one.size() + 1);
    }
}

FileForm form_of_accept(const net::Headers& headers) {
    const auto type = net::first_accepted(
        headers, {media_type_of(FileForm::npy), media_type_of(FileForm::raw), media_type_of(FileForm::safetensors)});
    return form_of_type(type).value_or(FileForm::safetensors);
}

std::uint64_t parse_block(const std::string& text) {
    const std::uint64_t block = net::parse_decimal(text).value_or(0);
    if (!std::has_single_bit(block) || block < std::uint64_t{64} << 10 || block > std::uint64_t{1} << 20)
        reject("digests", "the size of a block, a power of two from 65536 to 1048576", text);
    return block;
}

std::vector<net::BodyPart> parts_of(const std::shared_ptr<const TensorFile>& file, const net::ByteRange& range) {
    std::vector<net::BodyPart> parts;
    std::uint64_t begin = 0;
    const auto add = [&](std::uint64_t size, auto part) {
        const std::uint64_t first = std::max(range.first, begin);
        const std::uint64_t end = std::min(range.first + range.count, begin + size);
        if (first < end) parts.push_back(part().part(first - begin, end - first));
        begin += size;
    };
    add(file->head.size(), [&] { return net::BodyPart{std::as_bytes(std::span(file->head)), file}; });
    for (const tensor::ElementReader& one : file->elements) {
        if (begin >= range.first + range.count) break;
        add(one.size(), [&] {
            if (one.data() != nullptr) return net::BodyPart{{one.data(), static_cast<std::size_t>(one.size())}, file};
            return net::BodyPart{{}, {}, std::make_shared<tensor::ElementReader>(one), 0, one.size()};
        });
    }
    return parts;
}

struct Wanted {
    std::string owner;
    std::string name, member;  ///< `name` is the id of a lease, or a name
    bool is_lease = false;
    std::optional<std::uint64_t> version;
    FileForm form = FileForm::safetensors;
    std::string slice;  ///< as received
    std::vector<Rows> rows;
    std::uint64_t digests = 0;  ///< the size of the blocks whose digests are wanted; 0: the file is wanted
};

/// The tensor or set that was found.
struct Found {
    codec::TensorPointer tensor;  ///< null: the whole set
    std::shared_ptr<const NamedValue> value;
    std::uint64_t version = 0;
    std::string identity;  ///< differs if the elements differ
};

Wanted parse(const net::RequestHead& head, const Principal& principal) {
    Wanted wanted;
    wanted.owner = principal.name;
    std::string_view path = std::string_view(head.path).substr(kTensorPrefix.size());
    if (const auto form = tensor::form_of_name(path)) {
        wanted.form = *form;
        path.remove_suffix(tensor::suffix_of(*form).size());
    } else {
        wanted.form = form_of_accept(head.headers);
    }
    wanted.is_lease = path.starts_with("l-");
    const auto address = NamedTensors::parse_address(path);
    wanted.name = address.name;
    wanted.member = address.member;
    const auto parameters = net::parse_query(head.query);
    if (!parameters) reject("query", "name=value with %XX, each name once", "something else");
    for (const auto& [name, value] : *parameters) {
        if (name == "slice") {
            wanted.slice = value;
            wanted.rows = parse_rows(value);
        } else if (name == "version") {
            wanted.version = net::parse_decimal(value);
            if (!wanted.version) reject("version", "a number", value);
        } else if (name == "digests") {
            wanted.digests = parse_block(value);
        } else if (name == "owner") {
            wanted.owner = principal.admin ? value : std::string();
        } else {
            reject_parameter(name, "slice, version, digests, owner");
        }
    }
    return wanted;
}

/// What is wanted of one version; nullopt if it has no such member.
std::optional<Found> found_in(const Services& all, const runtime::NamedPointer& named, const Wanted& wanted) {
    Found found;
    found.value = {named, &NamedTensors::value_of(*named)};
    found.version = named->version;
    // Each owner has its own version numbers. A deleted name may come back with a version that it had (`version`).
    found.identity = all.names_epoch + "-" + std::to_string(std::hash<std::string>()(named->owner)) + "-" +
                     std::to_string(named->version) + "-" +
                     std::to_string(named->published_at.time_since_epoch() / std::chrono::nanoseconds(1));
    found.tensor = wanted.member.empty() ? found.value->tensor : found.value->member(wanted.member);
    if (found.tensor == nullptr && !wanted.member.empty()) return std::nullopt;
    return found;
}

Found find(Services& all, const Wanted& wanted) {
    const auto unknown = [&](const char* kind, const runtime::NamedPointer& now = nullptr) {
        const std::string name =
            wanted.is_lease ? "" : wanted.name + (wanted.member.empty() ? "" : '/' + wanted.member);
        json_rpc::Error error = json_rpc::unknown_or_expired(kind, all.epoch, name);
        if (now != nullptr) error.data["version"] = now->version;
        return Rejected(std::move(error), 404);
    };
    if (wanted.is_lease) {
        Found found;
        found.tensor = wanted.member.empty() ? all.leases.tensor(wanted.name, wanted.owner) : nullptr;
        if (found.tensor == nullptr) throw unknown("lease");
        found.identity = wanted.name;
        return found;
    }
    const auto named = all.names.store().find(wanted.owner, wanted.name);
    if (named == nullptr || (wanted.version && *wanted.version != named->version)) throw unknown("tensor", named);
    auto found = found_in(all, named, wanted);
    if (!found) throw unknown("tensor", named);
    return *std::move(found);
}

codec::TensorPointer cut_rows(const codec::TensorPointer& tensor, const std::vector<Rows>& rows,
                              const std::string& text) {
    const TensorRef& whole = tensor->tensor();
    tensor::Shape shape = tensor::shape_of(tensor);
    const tensor::Shape strides(whole.strides().begin(), whole.strides().end());
    if (shape.empty()) reject("slice", "a tensor that has dimensions", "one without");
    if (rows.size() > shape.size())
        reject("slice", "rows of at most " + std::to_string(shape.size()) + " dimensions", text);
    std::int64_t skipped = 0;  // elements
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t first = rows[i].first.value_or(0), last = rows[i].last.value_or(shape[i]);
        if (first > last || last > shape[i])
            reject("slice", "rows from 0 to " + std::to_string(shape[i]) + ", the first not behind the last", text);
        skipped += first * strides[i];
        shape[i] = last - first;
    }
    std::byte* const data = whole.mutable_data();
    const auto bytes = skipped * static_cast<std::int64_t>(tensor::size_of(whole.dtype()));
    return tensor::make_handle(whole.view(data != nullptr ? data + bytes : nullptr, whole.dtype(), shape, strides));
}

/// Rejects what has no such form, and cuts the rows.
void shape_as_wanted(Found& found, const Wanted& wanted) {
    if (found.tensor == nullptr && (wanted.form != FileForm::safetensors || !wanted.slice.empty()))
        reject("name", "a tensor: a set has members, and comes as .safetensors only", "a set");
    if (!wanted.slice.empty()) found.tensor = cut_rows(found.tensor, wanted.rows, wanted.slice);
}

std::string etag_of(const Found& found, const Wanted& wanted) {
    std::string etag = wanted.is_lease ? "W/\"" : "\"";
    etag.append(found.identity).append(tensor::suffix_of(wanted.form));
    if (!wanted.slice.empty()) etag.append("-").append(wanted.slice);
    return etag.append("\"");
}

std::shared_ptr<const TensorFile> make_file(const Found& found, const Wanted& wanted) {
    if (found.tensor == nullptr) return found.value->file();
    tensor::Metadata metadata;
    if (found.value != nullptr) metadata.insert(found.value->metadata.begin(), found.value->metadata.end());
    const std::string& name = wanted.is_lease ? "tensor" : wanted.member.empty() ? wanted.name : wanted.member;
    return std::make_shared<const TensorFile>(tensor::file_of(found.tensor, wanted.form, name, metadata));
}

/// `Kind`: Digest or Sha256. Blocks while it reads all bytes.
template <class Kind>
auto digest_of(const std::vector<net::BodyPart>& parts) {
    Kind digest;
    net::for_each_piece(parts, [&](std::span<const std::byte> piece) {
        digest.update(piece);
        return true;
    });
    return digest.value();
}

/// Returns a function that computes digests of parts of a file in hexadecimal, each once for a version.
/// A key for NamedValue::digest(). Names have no line breaks.
std::string key_of(const std::string& kind, const Found& found, const Wanted& wanted) {
    return kind + '\n' + wanted.member + '\n' + etag_of(found, wanted) + '\n';
}

template <class Kind>
auto hex_digests(const char* kind, const Found& found, const Wanted& wanted, std::shared_ptr<const TensorFile> file) {
    return [=, key = key_of(kind, found, wanted)](net::ByteRange part) {
        const auto make = [&] { return hex(digest_of<Kind>(parts_of(file, part))); };
        return found.value != nullptr ? found.value->digest(key + net::content_range(part, file->size), make) : make();
    };
}

/// digests_of(), computed once for a version. Rows are computed each time: there are too many ways to cut them.
std::string known_digests(const Found& found, const Wanted& wanted, const TensorFile& file, std::uint64_t block) {
    const auto make = [&] { return digests_of(file, block); };
    const std::string key = key_of("blocks " + std::to_string(block), found, wanted);
    return found.value != nullptr && wanted.slice.empty() ? found.value->digest(key, make) : make();
}

/// The file as it was in the older version that the reader has. Null if the reader names none, or it is not kept.
std::shared_ptr<const TensorFile> find_base(Services& all, const Wanted& wanted, const net::Headers& headers) {
    bool takes_deltas = false;
    for_each_in(headers.find("A-IM").value_or(""), [&](auto one) { takes_deltas |= net::same_token(one, kDelta); });
    const auto digest = net::parse_digest_field(headers.find("Shared-Tensor-Base")).value;
    if (!takes_deltas || !digest || !wanted.slice.empty()) return nullptr;
    for (const auto& named : all.names.store().older(wanted.owner, wanted.name)) {
        try {
            auto found = found_in(all, named, wanted);
            if (!found) continue;
            shape_as_wanted(*found, wanted);
            auto file = make_file(*found, wanted);
            const std::string digests = known_digests(*found, wanted, *file, kBaseBlock);
            if (Digest::of(std::as_bytes(std::span(digests))) == *digest) return file;
        } catch (const Rejected&) {  // it is no set, and another form is wanted
        }
    }
    return nullptr;
}

/// Whether a range may be sent: false if the client has other bytes than these (If-Range).
bool fits(const net::Headers& headers, std::string_view etag) {
    const auto condition = headers.find("If-Range");
    return !condition || (net::trim(*condition) == etag && !etag.starts_with("W/"));
}

}  // namespace

net::Response get_file(Services& all, const net::Request& request, const Principal& principal,
                       net::ResponseStream& response_stream) try {
    const net::RequestHead& head = request.head;
    const Wanted wanted = parse(head, principal);
    Found found = find(all, wanted);
    shape_as_wanted(found, wanted);
    const bool is_set = found.tensor == nullptr;
    const std::string etag = etag_of(found, wanted);
    net::Response response;
    response.headers.add("ETag", etag);
    response.headers.add("Accept-Ranges", "bytes");
    response.headers.add("Vary", "Accept, Accept-Encoding, Authorization");
    if (found.version != 0) response.headers.add("Shared-Tensor-Version", std::to_string(found.version));
    if (const auto condition = head.headers.find("If-Match");
        condition && *condition != "*" && (wanted.is_lease || !net::names_etag(*condition, etag, false)))
        throw Rejected(json_rpc::invalid_params("If-Match", etag, std::string(*condition)), 412);
    if (const auto condition = head.headers.find("If-None-Match");
        condition && net::names_etag(*condition, etag, true)) {
        response.status = 304;
        return response;
    }
    const auto file = make_file(found, wanted);
    if (wanted.digests > 0) {
        response.content_type = "application/octet-stream";
        response.text = known_digests(found, wanted, *file, wanted.digests);
        return response;
    }
    if (head.method == "POST") {
        return swarm_step(all, request,
                          {wanted.name + '/' + wanted.member + '\n' + etag, file->size,
                           hex_digests<Sha256>("sha-256 ", found, wanted, file),
                           hex_digests<Digest>("xxh3-128 ", found, wanted, file)});
    }
    if (!is_set) {
        response.headers.add("Shared-Tensor-Dtype", std::string(name_of(found.tensor->tensor().dtype())));
        response.headers.add("Shared-Tensor-Shape", tensor::text_of(found.tensor->tensor().shape()));
    }
    response.content_type = media_type_of(wanted.form);
    const bool may_be_part = head.method == "GET" && file->size > 0;  // an empty file has no ranges
    const auto requested = may_be_part && fits(head.headers, etag)
                               ? net::parse_range(head.headers.find("Range"), file->size)
                               : net::RangeRequest{};
    if (requested.kind == net::RangeRequest::Kind::not_there) {
        net::Response beyond =
            error_response(416, json_rpc::invalid_params("Range", "a part of " + std::to_string(file->size) + " bytes",
                                                         std::string(*head.headers.find("Range"))));
        beyond.headers.add("Content-Range", net::content_range_of_none(file->size));
        return beyond;
    }
    const bool is_part = requested.kind == net::RangeRequest::Kind::part;
    response.parts = parts_of(file, is_part ? requested.part : net::ByteRange{0, file->size});
    if (!is_part && send_compressed(head, all.compression, all.transports.compression(), response, response_stream))
        return response;
    std::string range;
    if (is_part) {
        response.status = 206;
        range = net::content_range(requested.part, file->size);
        response.headers.add("Content-Range", range);
        if (const auto base = find_base(all, wanted, head.headers)) {
            response.headers.add("Delta-Base", std::string(*head.headers.find("Shared-Tensor-Base")));
            if (auto delta = delta_of(*file, *base, requested.part)) {
                response.status = 226;
                response.headers.add("IM", std::string("range, ").append(kDelta));
                response.parts = *std::move(delta);
                return response;
            }
        }
    }
    if (net::wants_digest(head.headers.find("Want-Content-Digest"))) {
        const auto make = [&] { return net::digest_field(digest_of<Digest>(response.parts)); };
        const std::string digest =
            found.value != nullptr ? found.value->digest(key_of("field", found, wanted) + range, make) : make();
        response.headers.add("Content-Digest", digest);
    }
    return response;
} catch (const Rejected& rejected) {
    return error_response(rejected);
} catch (const tensor::SafetensorsError& error) {
    return error_response(
        406, json_rpc::invalid_params("form", "one that holds this tensor (.raw holds all)", error.what()));
} catch (const tensor::NpyError& error) {
    return error_response(
        406, json_rpc::invalid_params("form", "one that holds this tensor (.raw holds all)", error.what()));
} catch (const std::bad_alloc&) {
    return error_response(503, json_rpc::out_of_memory("there is no memory to read the tensor: try again later"));
} catch (const std::exception& error) {  // from a device
    log::error("a tensor cannot be read: ", error.what());
    return error_response(500, json_rpc::internal_error());
}

}  // namespace shared_tensor::server
