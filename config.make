# nginx's configure script reads this when it writes its makefile: the page is
# made into C whenever one of its sources is newer.

vibelock_page=$ngx_addon_dir/src/page

cat << END                                                    >> $NGX_MAKEFILE

$NGX_OBJS/ngx_http_vibelock_page_text.h:	$vibelock_page/embed.sh \\
	$vibelock_page/page.html \\
	$vibelock_page/page.css \\
	$vibelock_page/page.js
	sh $vibelock_page/embed.sh $vibelock_page > \$@.new
	mv \$@.new \$@

END
