#!/bin/bash
# all.sh: builds each line "NAME SOURCE FLAGS" of variants.txt at a time
cd $(dirname $0)
while read name src flags; do [ -n "$name" ] && ./build.sh $name src/$src $flags > /tmp/$name.out 2>&1 & done < variants.txt; wait
while read name src flags; do [ -n "$name" ] && grep -h "rc\|error\|C75" /tmp/$name.out | cut -c1-150; done < variants.txt
