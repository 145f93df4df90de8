systemd-sysusers millpond.conf || :
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -eq 1 ]; then
        systemctl preset millpond.service || :
    elif systemctl is-active --quiet millpond.service; then
        # The new binary takes over from the one that runs.
        /usr/lib/millpond/change-binary || :
    fi
fi
