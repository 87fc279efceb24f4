"""Portuguese-English text of the IT domain, out of Debian's packages: what programs say, from their gettext catalogs.

    python benchmarks/it_text.py --output it.pt-en.tsv.gz

Downloads the packages named below with apt (no root needed, some 0.5 GB), and writes Portuguese, English and the
package with its version as a TSV file.  The same packages make the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import gettext
import gzip
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

NAMES = """
    4pane accerciser accountwizard aegisub-l10n aisleriot akonadi-contacts-data akonadi-mime-data akregator
    amule-common apostrophe apper-data appstream appstream-util apt aptitude-common ario-common ark aspell
    atril-common audacious audacious-plugins-data audacity-data auto-multiple-choice-common awffull
    backintime-common baloo-kf5 balsa-data bash bcnc binutils-common birdfont-common bison bleachbit bluefish-data
    blueman boinc-manager bookworm brasero-common budgie-control-center-data budgie-core butt cairo-dock-core
    cairo-dock-plug-in-data caja-common caja-extensions-common calcurse calligrawords-data cantor catfish
    celluloid certmonger cervisia cflow-l10n chatty checkinstall cheese-common cherrytree choqok clamtk
    claws-mail-i18n colord-data colorhug-client compiz-core compiz-plugins-extra compiz-plugins-main coreutils
    cpio cpu-x cryptsetup-bin davical dconf-editor dctrl-tools deja-dup devhelp-common devilspie dialect dico
    diffuse dino-im-common dnf-data dnf-plugins-core dolphin-emu-data dolphin-plugins dopewars-data dpkg drkonqi
    dselect dupeguru duplicity dvdisaster easyeffects easytag elisa elogind emerald encfs endeavour-common
    engrampa-common eog eog-plugins-common eom-common epiphany-browser-data epoptes evince-common
    evolution-data-server-common evolution-ews fdroidserver file-roller filezilla-common findutils firewalld
    fish-common flatpak flex foliate folks-common font-manager-common fprintd freedink-dfarc freeipa-common
    frogr-data gajim gamehub gammastep gawk gbrainy gcc-12-locales gconf2-common gcr gdbm-l10n gdebi-core gdm3
    geany-common geany-plugins-common geary gedit-common gedit-plugins-common geeqie-common genius-common gettext
    gftp-common ghemical ghex giggle gigolo gimagereader-common gimp-plugin-registry git-cola gitg gkrellm
    glabels-data glib-networking-common gliv glom gmtp gnome-boxes gnome-builder gnome-calculator gnome-calls
    gnome-chess gnome-color-manager gnome-commander-data gnome-contacts gnome-dictionary gnome-disk-utility
    gnome-dvb-client gnome-feeds gnome-firmware gnome-flashback-common gnome-games-app gnome-initial-setup
    gnome-keysign gnome-maps gnome-multi-writer gnome-nettool gnome-nibbles gnome-packagekit-common
    gnome-panel-data gnome-robots gnome-screensaver gnome-settings-daemon-common gnome-shell-common
    gnome-shell-extension-dash-to-panel gnome-shell-extension-dashtodock gnome-shell-extension-desktop-icons-ng
    gnome-shell-extension-gsconnect gnome-software-common gnome-subtitles gnome-system-monitor gnome-terminal-data
    gnome-tetravex gnome-text-editor gnome-video-arcade gnubiff gnuchess gnumed-client gnumeric-common gnupg1-l10n
    gnusim8085 go-for-it goaccess goobox gourmand gpa gparted-common gperiodic gphoto2 gpodder grilo-plugins-0.3
    grub-common grub-customizer gsasl-common gscan2pdf gsettings-desktop-schemas gstreamer1.0-plugins-good
    gtetrinet gtg gthumb-data gtkam gtklp gtkpod-data gtranslator guake gucharmap gufw gummi gvfs-common
    gwyddion-common hamster-time-tracker heroes hexchat-common homebank-data hydrapaper iagno ibus-anthy
    ibus-table imagination-common iptux iso-codes isomaster jhbuild juk kaddressbook-data kaffeine kalarm kbd
    kblackbox kcachegrind kcalc kde-cli-tools-data kde-config-tablet kde-config-telepathy-accounts kde-spectacle
    kde-style-oxygen-qt5 kde-telepathy-data kde-telepathy-text-ui kdeconnect kdepim-addons kdepim-runtime
    kdeplasma-addons-data kdesvn kdevelop-l10n kdevelop-python-l10n kdiff3 kexi-data kildclient kile-l10n killbots
    kio-audiocd kio-extras-data kipi-plugins-common kiten klavaro kmag kmix kmouth knotes kompare konq-plugins
    konsole konsolekalendar kontact korganizer krb5-auth-dialog krdc krename krfb ksudoku ksystemlog
    ktexteditor-data ktimetracker ktorrent-data kturtle kubrick kupfer kwalletmanager kxstitch-common
    latexila-data latte-dock libalpm13 libc-l10n libclutter-1.0-common libcogl-common libdnf2-common libecpg-dev
    libeiskaltdcpp2.4 libexif12 libexo-2-0 libextractor3 libfilezilla-common libfm-data libgammu-i18n libgcu0v5
    libgda-5.0-common libgdata-common libgdk-pixbuf2.0-common libgdl-3-common libgegl-common libghemical-data
    libgimp2.0 libgladeui-common libglib2.0-data libgnomecanvas2-common libgnutls30 libgoa-1.0-common
    libgoffice-0.10-10-common libgoocanvas-2.0-common libgpaste-2-common libgsf-1-common libgss3
    libgstreamer-plugins-base1.0-0 libgstreamer1.0-0 libgtk-4-common libgtk2.0-common libgweather-4-common
    libhandy-1-0 libkf5akonadi-data libkf5akonadicalendar-data libkf5calendarsupport-data libkf5calendarutils5
    libkf5eventviews-data libkf5incidenceeditor-data libkf5kdelibs4support-data libkf5khtml-data libkf5ksieve-data
    libkf5libkleo-data libkf5mailcommon-data libkf5mailimporter5 libkf5mailtransport-data libkf5newstuff-data
    libkf5pimcommon-data libkf5sysguard-data libkf5unitconversion-data libkf5xmlgui-data libkpmcore12
    libmypaint-common libnma-common libokteta-l10n libosinfo-l10n libpam-runtime libparted-i18n libsynfig0a
    libuser libvirt-l10n libvolume-key1 libwnck-common libxfce4ui-common libzypp-common liferea-data login
    lokalize lollypop lomiri-camera-app lomiri-filemanager-app lomiri-system-settings lxpanel-data lxsession-data
    mailutils-common make-guile malcontent man-db marco-common mate-control-center-common mate-desktop-common
    mate-panel-common mate-session-manager mate-settings-daemon-common mate-system-monitor-common
    mate-terminal-common mate-tweak mc-data meld mercurial-common metacity-common metadata-cleaner minicom mirage
    mnemosyne morph-browser mousepad msmtp mtpaint mutt mutter-common mypaint-data nala nano nautilus-data ncmpc
    neochat neomutt net-tools network-manager-gnome network-manager-openconnect network-manager-openvpn
    network-manager-sstp newsboat obconf ocrfeeder onboard-common orage-data orca oregano osmo p11-kit packagekit
    pacman-package-manager palapeli-data pan parcellite parlatype parole partitionmanager pcb-common pcmanfm peek
    php-horde-core php-horde-form php-horde-imp php-horde-ingo php-horde-kronolith php-horde-nag php-horde-turba
    php-horde-whups php-horde-wicked picard pidgin-otr pidgin-sipe pim-data-exporter pinot piper pitivi
    planner-data plasma-discover-common plasma-nm plasma-sdk plasma-vault pluma-common po4a poedit-common polari
    policycoreutils postgresql-client-15 postgresql-plpython3-15 powerdevil-data pragha print-manager procps
    pulseaudio python-apt-common python3-aeidon python3-django python3-django-allauth python3-django-horizon
    python3-django-hyperkitty python3-django-postorius python3-djangorestframework python3-formencode
    python3-searx python3-sepolgen qalculate-gtk qbrz qreator qtcurve-l10n quadrapassel rabbitvcs-core realmd
    recutils rednotebook regexxer remmina-common revelation rhythmbox-data ristretto rkward-data rocs rox-filer
    rpm-i18n rsibreak rygel safeeyes sarg sawfish-data scim seahorse seahorse-daemon secrets shared-mime-info
    sharutils shotwell-common shutter simple-scan siril-common snapper solaar solfege sonata sound-juicer
    soundkonverter spacefm-common sphinx-common stardict-common step subdownloader subtitlecomposer subtitleeditor
    subversion sudo-ldap sugar-calculate-activity sugar-session sylpheed-i18n sympa synapse synaptic
    syncevolution-common sysprof system-config-printer-common tali tar teg tellico-data terminator
    terminology-data texinfo thunar-data thunar-vcs-plugin thunar-volman tigervnc-viewer tilix-common timeshift
    tortoisehg totem-common tracker tracker-extract transmission-gtk tuxpaint-config tvtime udevil udisks2
    ufoai-misc uget util-linux-locales v4l-utils vagalume vinagre vino virt-viewer virtinst wcd weechat-core wget
    wike wxhexeditor xarchiver xfburn xfce4-clipman xfce4-dict xfce4-mailwatch-plugin xfce4-panel
    xfce4-power-manager-data xfce4-screenshooter xfce4-session xfce4-settings xfce4-terminal xfce4-weather-plugin
    xfdesktop4-data xfe-i18n xfwm4 xine-ui xkb-data xmoto xournal xournalpp xsane-common yad yakuake zathura
    zenity-common zim zypper-common
"""
PACKAGES = tuple(NAMES.split())
END_OF_CONTEXT = "\x04"
CATALOG = re.compile(r"/pt_BR/LC_MESSAGES/[^/]+\.mo$")
# Markup, directives of printf and their like, variables, options of commands, addresses: no text that one translates.
NOISE = re.compile(r"[<>{}|\\\x00-\x1f]|%[^\s%]|\$[\w(]|--\w|://|^-")
LETTER = re.compile(r"[^\W\d_]")
LEAST_LETTERS = 0.6  # of what is not a space
ENGLISH_WORDS, PORTUGUESE_WORDS = (4, 80), (3, 80)  # single words of menus would make up half of the text


class Phrase(NamedTuple):
    """What a program says, in both languages."""

    portuguese: str
    english: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/it.pt-en.tsv.gz"))
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="others than those that the script names")
    parser.add_argument("--cache", type=Path, default=Path("results/debian"), help="where packages are downloaded to")
    arguments = parser.parse_args()

    found: list[tuple[Phrase, str]] = []
    for package in download(arguments.packages, arguments.cache):
        name, version = package.name.split("_")[:2]
        label = f"{name}={version.replace('%3a', ':')}"
        phrases = [phrase for catalog in catalogs(package) for phrase in phrases_of(catalog)]
        print(f"{label}: {len(phrases):,} phrases", flush=True)
        found += [(phrase, label) for phrase in phrases]
    rows = list(unique(found))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.writelines(f"{phrase.portuguese}\t{phrase.english}\t{label}\n".encode() for phrase, label in rows)
    words = sum(len(phrase.english.split()) for phrase, _ in rows)
    print(f"{arguments.output}: {len(rows):,} sentence pairs, {words:,} English words.")


def download(names: Iterable[str], folder: Path) -> list[Path]:
    """The packages, downloaded into the folder unless they are there; those that this Debian lacks are left out."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise SystemExit(f"There is no {tool} here: run this on Debian, or in a container of it.")
    known = set(subprocess.run(["apt-cache", "pkgnames"], check=True, capture_output=True, text=True).stdout.split())
    wanted = [name for name in names if name in known]
    lacking = [name for name in names if name not in known]
    if not wanted:
        raise SystemExit("apt knows none of the packages: run `apt-get update` first.")
    if lacking:
        print(f"Left out, for apt does not know them here: {', '.join(lacking)}.")
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["apt-get", "--quiet", "download", *wanted], cwd=folder, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("apt-get could not download all packages: see above, and run the same command again.")
    # Of two versions in the cache the later one is the one that apt has just asked for.
    return [max(folder.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime) for name in wanted]


def catalogs(package: Path) -> Iterator[gettext.GNUTranslations]:
    """The Portuguese catalogs in a package, read without unpacking it."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and CATALOG.search(member.name) else None
            if file is not None:
                try:
                    yield gettext.GNUTranslations(file)
                except (OSError, UnicodeDecodeError):
                    print(f"{package.name}: {member.name} cannot be read.")


def phrases_of(catalog: gettext.GNUTranslations) -> Iterator[Phrase]:
    """What is fit for a corpus in a catalog; of plural forms the singular, the only one whose English is kept."""
    entries = vars(catalog)["_catalog"]  # there is no public way to list them
    for message, translation in entries.items():
        text, form = message if isinstance(message, tuple) else (message, 0)
        english = text.rpartition(END_OF_CONTEXT)[2]
        if text and form == 0 and (phrase := cleaned(english, translation)) is not None:
            yield phrase


def cleaned(english: str, portuguese: str) -> Phrase | None:
    """One line on each side, without the marks of keyboard shortcuts; None if it is no text worth having."""
    english, portuguese = " ".join(english.split()), " ".join(portuguese.split())
    for mark in "_&":
        english, portuguese = _unmarked(english, portuguese, mark), _unmarked(portuguese, english, mark)
    fit = (
        ENGLISH_WORDS[0] <= len(english.split()) <= ENGLISH_WORDS[1]
        and PORTUGUESE_WORDS[0] <= len(portuguese.split()) <= PORTUGUESE_WORDS[1]
        and english.casefold() != portuguese.casefold()
        and all(_is_text(side) for side in (english, portuguese))
    )
    return Phrase(portuguese, english) if fit else None


def unique(found: Iterable[tuple[Phrase, str]]) -> Iterator[tuple[Phrase, str]]:
    """Each Portuguese and each English sentence once, whatever their case."""
    sources: set[str] = set()
    targets: set[str] = set()
    for phrase, label in found:
        source, target = phrase.portuguese.casefold(), phrase.english.casefold()
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            yield phrase, label


def _unmarked(text: str, other: str, mark: str) -> str:
    """Without the mark of a shortcut, as in `_File`: a name such as `user_name` stands in the other language, too."""
    marked = [word for word in text.split() if re.search(rf"{mark}[^\W\d_]", word)]
    return text.replace(mark, "") if text.count(mark) == 1 and marked and marked[0] not in other.split() else text


def _is_text(side: str) -> bool:
    return not NOISE.search(side) and len(LETTER.findall(side)) >= LEAST_LETTERS * len(side.replace(" ", ""))


if __name__ == "__main__":
    main()
