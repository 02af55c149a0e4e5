# cmake -DFOLDER= -DWANTED=a.c|b.c -P crtexport_sources.cmake
# The build compiles the sources WANTED: are these what the exporter wrote into FOLDER?
file(GLOB sources ${FOLDER}/*.c)
list(SORT sources)
string(REPLACE "|" ";" WANTED "${WANTED}")
list(SORT WANTED)
if(NOT "${sources}" STREQUAL "${WANTED}")
  message(FATAL_ERROR "the exporter wrote ${sources}, but the build compiles \"${WANTED}\". "
    "External sources need PACKAGE instead of MODEL; or else crtexport.cmake and the exporter are "
    "of different versions")
endif()
