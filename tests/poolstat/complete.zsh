# SPDX-License-Identifier: MIT
# What zsh would offer: zsh -f complete.zsh FOLDER PATH LINE prints one offer a line, without what explains it. FOLDER holds
# _poolstat. An interactive zsh in a terminal of its own is sent the line and a tab, and what it lists is read.
zmodload zsh/zpty zsh/zselect
zpty inner "PATH=${(q)2} TERM=dumb zsh -f -i"
zpty -w inner "stty cols 400; PS1=; unsetopt zle_bracketed_paste; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -D -u"
zpty -w inner "unset zle_bracketed_paste; unsetopt beep; LISTMAX=1000; print ready''now"
while zpty -r inner line && [[ $line != *readynow* ]]; do :; done
zpty -w -n inner "${3}"$'\t'
text=''
# It has listed all when nothing more comes for half a second; the first may take long.
for ((quiet = 0, waited = 0; quiet < 50 && waited < 2000; quiet++, waited++)); do
    while zpty -r -t inner part; do text+=$part quiet=0; done
    [[ $text == *' -- '* ]] || quiet=0
    zselect -t 1
done
zpty -d inner
for line in ${(f)text}; do
    line=${line%%$'\r'*}
    if [[ $line == *' -- '* ]]; then print -r -- ${line%%[[:space:]]*}; fi
done
