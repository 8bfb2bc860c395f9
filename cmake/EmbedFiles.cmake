# Writes a C++ file with the dashboard's files as string literals. Run as a script:
#
#   cmake -DOUT=FILE.cpp -DFILES="/=FOLDER/index.html|/dashboard/style.css=FOLDER/style.css" -P EmbedFiles.cmake

string(REPLACE "|" ";" pairs "${FILES}")
set(text "// Made by cmake/EmbedFiles.cmake.\n#include \"server/dashboard/dashboard.hpp\"\n
namespace shared_tensor::server {\n\nnamespace {\n\nconstexpr DashboardFile kFiles[] = {\n")
foreach(pair IN LISTS pairs)
  string(REGEX MATCH "^([^=]*)=(.*)$" _ "${pair}")
  set(path "${CMAKE_MATCH_1}")
  set(file "${CMAKE_MATCH_2}")
  file(READ "${file}" content)
  file(SHA256 "${file}" digest)
  string(SUBSTRING "${digest}" 0 16 digest)
  string(APPEND text "    {\"${path}\",\n     R\"embedded(${content})embedded\",\n     \"${digest}\"},\n")
endforeach()
string(APPEND text "};\n
}  // namespace

std::span<const DashboardFile> dashboard_files() { return kFiles; }

}  // namespace shared_tensor::server\n")
file(WRITE "${OUT}" "${text}")
